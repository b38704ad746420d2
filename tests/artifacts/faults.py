"""Faults at every step of a write: the process killed, or the system call failing, before or after each call of ``os``.

The product code has no switch for this: the functions of ``os`` are replaced in a forked child, or by monkeypatch.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

STEPS = ("open", "write", "fsync", "rename", "link", "mkdir", "chmod", "utime", "unlink")
KILLED = -signal.SIGKILL


@contextmanager
def counted_steps(before: Callable[[int, str], None], after: Callable[[int, str], None]) -> Iterator[list[str]]:
    """Call ``before`` and ``after`` around each call that changes the disk; yields the names of the calls so far."""
    seen: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        for name in STEPS:
            patch.setattr(os, name, _wrapped(name, getattr(os, name), seen, before, after))
        yield seen


def _wrapped(name: str, real: Callable[..., object], seen: list[str], before: object, after: object) -> object:
    def call(*args: object, **kwargs: object) -> object:
        if name == "open" and not int(args[1] if len(args) > 1 else 0) & os.O_CREAT:  # type: ignore[call-overload]
            return real(*args, **kwargs)
        seen.append(name)
        number = len(seen)
        before(number, name)  # type: ignore[operator]
        try:
            return real(*args, **kwargs)
        finally:
            after(number, name)  # type: ignore[operator]

    return call


def run_killed_at(step: int, action: Callable[[], object]) -> int:
    """Run an action in a forked child that gets SIGKILL at a step: odd ones before a call, even ones after it.

    Returns the child's exit code: 0 when it ended before the step came, ``KILLED`` when it was killed.
    """

    def kill(number: int, when: int) -> None:
        if number * 2 - when == step:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        code = 1
        try:
            with counted_steps(lambda number, _: kill(number, 1), lambda number, _: kill(number, 0)):
                action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def steps_of(action: Callable[[], object]) -> list[str]:
    """The names of the calls that an action makes."""
    with counted_steps(lambda *_: None, lambda *_: None) as seen:
        action()
    return seen


@contextmanager
def failing_from(step: int, code: int, names: tuple[str, ...], *, once: bool = False) -> Iterator[None]:
    """From a step on (or at it alone), calls of the given names fail with an errno."""

    def fail(number: int, name: str) -> None:
        if name in names and (number == step if once else number >= step):
            raise OSError(code, os.strerror(code), "the-disk")

    with counted_steps(fail, lambda *_: None):
        yield
