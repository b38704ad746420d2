"""Showing a conversion: progress on stderr while it runs, the result on stdout when it ended."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from artifacts.errors import one_line
from artifacts.render import echo, print_table, size_text
from convert.ladder import ladder_text
from convert.request import Conversion, StageRun, TargetResult, as_json
from convert.stage import Event, Listener

HEARTBEAT = 30.0
"""Seconds between signs of life of one stage, where no live display shows them."""


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Listener]:
    """A listener that writes to stderr: a live line on a terminal, one line for each stage elsewhere."""
    if quiet:
        yield lambda event: None
        return
    shown = _Live() if sys.stderr.isatty() else _Lines()
    try:
        yield shown.tell
    finally:
        shown.close()


class _Lines:
    """One line when a stage ends, and a sign of life while a long one runs."""

    def __init__(self) -> None:
        self._running: dict[tuple[str, str], float] = {}
        self._over = threading.Event()
        self._beat = threading.Thread(target=self._heartbeat, daemon=True)
        self._beat.start()

    def tell(self, event: Event) -> None:
        key = (event.target, event.stage)
        if event.run is None:
            self._running[key] = time.monotonic()
        else:
            self._running.pop(key, None)
            echo(_stage_line(event.target, event.run), err=True)

    def _heartbeat(self) -> None:
        while not self._over.wait(HEARTBEAT):
            for (target, stage), begun in list(self._running.items()):
                echo(f"{_where(target, stage)}… {time.monotonic() - begun:.0f} s", err=True)

    def close(self) -> None:
        self._over.set()


class _Live:
    """A spinner with the running stages, and a line for each that ended."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[tuple[str, str], object] = {}
        self._progress.start()

    def tell(self, event: Event) -> None:
        key = (event.target, event.stage)
        if event.run is None:
            self._tasks[key] = self._progress.add_task(_where(event.target, event.stage))
            return
        task = self._tasks.pop(key, None)
        if task is not None:
            self._progress.remove_task(task)  # type: ignore[arg-type]
        self._progress.console.print(_stage_line(event.target, event.run), markup=False, highlight=False)

    def close(self) -> None:
        self._progress.stop()


def _where(target: str, stage: str) -> str:
    return f"{stage:9}" + (f" {target}" if target else "")


def _stage_line(target: str, run: StageRun) -> str:
    cost = "cached" if run.cached else f"{run.seconds:.1f} s"
    said = "; ".join(note.text + (f" ({note.subject})" if note.subject else "") for note in run.notes)
    return one_line(f"{_where(target, run.stage)}  {cost}" + (f"  {said}" if said else ""))


def print_conversion(conversion: Conversion, *, as_json: bool) -> int:
    """Print a conversion and give its exit code."""
    if as_json:
        echo(msgspec.json.encode(json_of(conversion)).decode())
        _print_errors(conversion)
        return conversion.exit_code
    for result in conversion.targets:
        _print_target(conversion, result)
    _print_errors(conversion)
    return conversion.exit_code


json_of = as_json


def _print_errors(conversion: Conversion) -> None:
    """Each different error once, in two lines on stderr."""
    seen = set()
    for error in [result.error for result in conversion.targets if result.error]:
        told = (error["code"], error["message"])
        if told not in seen:
            seen.add(told)
            echo(f"error [{error['code']}]: {error['message']}", err=True)
            if error["hint"]:
                echo(f"hint: {error['hint']}", err=True)


def _print_target(conversion: Conversion, result: TargetResult) -> None:
    echo(_headline(conversion, result))
    if result.support is not None and result.support.judged:
        _print_support(result)
    if result.report is not None and result.report.outputs:
        rows = [
            (output.name, output.state, _number(output.cosine), _number(output.rel_l2), _number(output.max_abs))
            for output in result.report.outputs
        ]
        print_table(("output", "state", "cosine", "rel L2", "max abs"), rows)
    if result.report is None and result.forecast is not None:
        forecast_rows = [
            (output.name, "forecast", _number(output.cosine), _number(output.rel_l2), _number(output.max_abs))
            for output in result.forecast.planned or result.forecast.outputs
        ]
        print_table(("output", "state", "cosine", "rel L2", "max abs"), forecast_rows)
    if result.ladder:
        echo(f"ladder    {ladder_text(result.ladder)}")
    if result.plan is not None and result.status == "planned":
        echo(f"plan      {' '.join(result.plan.argv)}")
        for note in result.plan.notes:
            echo(f"{note.level:9} {note.text}")
    if result.artifact is not None:
        echo(f"artifact  {result.artifact.path}  {size_text(result.artifact.bytes)}  {result.artifact.sha256}")
    if result.handoff is not None:
        size = size_text(result.handoff["bytes"])
        echo(f"handoff   {result.handoff['path']}  {size}  {result.handoff['sha256']}")
    for note in result.notes:
        echo(f"{note.level:9} {note.text}")
    if result.folder:
        echo(f"report    {result.folder}/report.html")
    if result.artifact is not None and result.artifact.ref:
        echo(f"fetch     artifacts pull {result.artifact.ref} --target {result.target}")


def _headline(conversion: Conversion, result: TargetResult) -> str:
    words = [f"{conversion.name} → {result.target}"]
    if result.soc:
        words.append(result.soc)
    if result.precision:
        words.append(result.precision)
    words.append(f"{result.status}")
    if result.artifact is not None and result.artifact.ref:
        words.append(result.artifact.ref)
    if result.verdict is not None and result.report is not None:
        words.append(f"gate {'passed' if result.verdict.passed else 'FAILED'} on {result.report.ran_on}")
    elif result.support is not None:
        version = f", toolchain {result.support.toolchain_version}" if result.support.toolchain_version else ""
        words.append(f"{result.support.nodes} nodes at opset {result.support.opset}{version}")
    return "  ".join(words)


def _print_support(result: TargetResult) -> None:
    """What is not ``ok``, the same reasons together, and what can be done about each."""
    assert result.support is not None
    groups: dict[tuple[str, str, str, str, str], list[str]] = {}
    hints: dict[str, str] = {}
    for one in result.support.judged:
        groups.setdefault((one.state, one.op, one.reason, one.grade, one.source), []).append(one.module or one.node)
        if one.hint:
            hints.setdefault(one.hint, one.op)
    rows = [
        (state, op, str(len(nodes)), reason, ", ".join(nodes[:2]) + (" …" if len(nodes) > 2 else ""), grade, source)
        for (state, op, reason, grade, source), nodes in sorted(groups.items())
    ]
    print_table(("state", "operator", "nodes", "reason", "where", "grade", "source"), rows)
    for hint, op in hints.items():
        echo(f"hint      {op}: {hint}")


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.6g}"
