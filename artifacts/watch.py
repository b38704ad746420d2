"""Keeping a pulled folder current: pull again and again, and run a command after each change.

What the command was last run for successfully is noted beside the folder, so that it runs exactly once for each change
that it takes, also across a restart, and again after a failure.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from artifacts.durable import fsync_folder, make_folders, temporary_path, write_durable, writing
from artifacts.errors import ModelConvertError
from artifacts.pull import Pulled
from artifacts.runner import run_process

HOOK_SECONDS = 600.0
Tell = Callable[[str], None]


def watch(
    pull_once: Callable[[], Pulled],
    *,
    seconds: float,
    hook: str = "",
    tell: Tell,
    sleep: Callable[[float], None] = time.sleep,
    turns: int | None = None,
) -> None:
    """Pull every ``seconds``; a pull that fails is told, and the folder stays as it is.

    Args:
        pull_once: Pulls into the folder, and says what is there now.
        seconds: The pause between two pulls.
        hook: A command for ``sh`` to run after each change, with ``CONVERT_PATH``, ``CONVERT_REF`` and
            ``CONVERT_DIGEST`` in its environment; it has ten minutes.
        tell: Takes lines for people.
        sleep: Waits.
        turns: How often to pull; without end where None.
    """
    turn = 0
    while turns is None or turn < turns:
        if turn:
            sleep(seconds)
        turn += 1
        try:
            pulled = pull_once()
            if not pulled.already:
                tell(f"{pulled.path} is {pulled.ref} now ({pulled.digest})")
            if hook:
                _run_hook(hook, pulled, tell)
        except ModelConvertError as error:
            tell(f"error [{error.code}]: {error.message}; trying again in {seconds:g} s")


def _run_hook(hook: str, pulled: Pulled, tell: Tell) -> None:
    out = Path(pulled.path).absolute()
    state = out.with_name(f".{out.name}.hook")
    with writing(f"creating {state}"):
        make_folders(state)
    done = state / "done"
    if done.is_file() and done.read_bytes() == pulled.digest.encode():
        return
    environment = {"CONVERT_PATH": str(out), "CONVERT_REF": pulled.ref, "CONVERT_DIGEST": pulled.digest}
    log = state / "hook.log"
    ended = run_process(
        ["/bin/sh", "-c", hook], folder=out.parent, log=log, timeout=HOOK_SECONDS, environment=environment
    )
    if ended.returncode != 0 or ended.timed_out:
        how = "took too long" if ended.timed_out else f"failed with exit code {ended.returncode}"
        tell(f"the hook {how}; it will be run again; its output is in {log}")
        return
    with writing(f"writing {done}"):
        write_durable(done, pulled.digest.encode(), temporary=temporary_path(state, "done"))
        fsync_folder(state)
    tell(f"the hook has run for {pulled.digest}")
