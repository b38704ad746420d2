"""``convert diff A B``: two model files on the same inputs, or two files of outputs, output by output."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import click
import msgspec

from convert.commands.options import LOADING, add_options, load_options
from convert.errors import GateFailed
from convert.gate import gate_failed, judge, parse_gate
from convert.report.text import metrics_table, shown, verdict_text
from convert.stages.diff_options import DiffOptions, DiffResult
from convert.user_metrics import metric_names
from convert.values import GateVerdict


@click.command("diff")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path))
@add_options(LOADING)
@click.option("--metric", "metrics", multiple=True, metavar="MODULE:CALLABLE", help="A metric of your own; repeatable.")
@click.option("--gate", "gates", multiple=True, metavar="METRIC=VALUE", help="Replace a threshold; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def diff(a: Path, b: Path, *, metrics: tuple[str, ...], gates: tuple[str, ...], as_json: bool, **loading: Any) -> None:
    """Compare B with A: two model files on the same inputs, or two .npz files of outputs.

    Outputs are paired by position and judged with the thresholds of fp32, or with those of --gate. Exits 0 where they
    agree, 8 where they differ beyond the gate.
    """
    overrides = parse_gate(gates, metric_names(metrics))
    left, right = (load_options(str(path), loading) for path in (a, b))
    result = run_diff(DiffOptions(left=left, right=right, metrics=metrics))
    verdict = judge(result.report, "fp32", overrides)
    error = None if verdict.passed else gate_failed(verdict, str(b), code="CNV-8002")
    if as_json:
        document = as_document(result, verdict) | {"error": error.as_json() if error else None}
        click.echo(msgspec.json.encode(document).decode())
        raise click.exceptions.Exit(error.exit_code if error else 0)
    click.echo("\n".join(as_text(result, verdict)))
    if error:
        raise error


def run_diff(options: DiffOptions) -> DiffResult:
    """Run the comparison in a worker process, which may crash without harm.

    Raises what :func:`convert.stages.diff.run_both` raises, and GateFailed CNV-8003 where the worker's process ended.
    """
    from convert.host import StageHost, WorkerDied

    with tempfile.TemporaryDirectory(prefix="convert-diff-") as folder:
        with StageHost(Path(folder) / "worker.log", preload=("numpy",)) as host, host.worker() as worker:
            try:
                answer = worker.call("convert.stages.diff:run_both", options, folder)
            except WorkerDied as death:
                raise GateFailed(
                    "CNV-8003",
                    f"running {Path(options.left.path).name} or {Path(options.right.path).name} ended: {death.cause}",
                    hint="native code crashed, or the system ended it for want of memory; convert each file alone to "
                    "see which one it is",
                ) from death
        return msgspec.json.decode(answer.value, type=DiffResult)


def as_document(result: DiffResult, verdict: GateVerdict) -> dict[str, Any]:
    """What ``--json`` prints."""
    return {
        "schema": 1,
        "left": result.left,
        "right": result.right,
        "passed": verdict.passed,
        "precision": "fp32",
        "samples": result.report.samples,
        "thresholds": verdict.thresholds,
        "failures": verdict.failures,
        "remarks": verdict.remarks,
        "outputs": result.report.outputs,
        "notes": result.report.notes,
    }


def as_text(result: DiffResult, verdict: GateVerdict) -> list[str]:
    """What people read: the verdict, both files, the metrics, the notes."""
    lines = [verdict_text(verdict, "fp32")]
    for word, side in (("A", result.left), ("B", result.right)):
        outputs = ", ".join(shown(name) for name in side.outputs)
        lines.append(f"{word}: {shown(side.path)} ({side.format}; outputs {outputs})")
    lines.append(metrics_table(result.report.outputs))
    return lines + [f"{note.level}: {note.text}" for note in result.report.notes]
