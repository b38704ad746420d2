"""Several slow questions at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

R = TypeVar("R")


def together(calls: Sequence[Callable[[], R]]) -> list[R]:
    """The results of calls in their order, each made in a thread of its own; the first exception is raised again.

    The threads are daemons: an interrupt waits for none of them, and what they started ends with this process.
    """
    results: dict[int, R] = {}
    failures: list[BaseException] = []

    def make(number: int) -> None:
        try:
            results[number] = calls[number]()
        except BaseException as error:  # noqa: BLE001  raised again in the thread that asked
            failures.append(error)

    threads = [threading.Thread(target=make, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return [results[number] for number in range(len(calls))]
