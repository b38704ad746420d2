"""``convert diff A B``: two model files on the same inputs, or two files of outputs, output by output."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from artifacts.render import echo
from artifacts.scratch import temporary_folder
from convert.commands.options import LOADING, add_options, load_options
from convert.errors import GateFailed
from convert.gate import THRESHOLDS, gate_failed, judge, parse_gate
from convert.nodewise.values import NodeDiff
from convert.report.text import metrics_table, shown, verdict_text
from convert.stages.diff_options import DiffOptions, DiffResult
from convert.user_metrics import metric_names
from convert.values import GateVerdict

R = TypeVar("R")


@click.command("diff")
@click.argument("a", type=click.Path(path_type=Path))
@click.argument("b", type=click.Path(path_type=Path), required=False)
@add_options(LOADING)
@click.option("--per-node", is_flag=True, help="Name the first node whose output departs (two ONNX files).")
@click.option("--dump", metavar="PATH", help="With --per-node: what a vendor's tool left of a run, in place of B.")
@click.option("--metric", "metrics", multiple=True, metavar="MODULE:CALLABLE", help="A metric of your own; repeatable.")
@click.option("--gate", "gates", multiple=True, metavar="METRIC=VALUE", help="Replace a threshold; repeatable.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def diff(
    a: Path,
    b: Path | None,
    *,
    per_node: bool,
    dump: str | None,
    metrics: tuple[str, ...],
    gates: tuple[str, ...],
    as_json: bool,
    **loading: Any,
) -> None:
    """Compare B with A: two model files on the same inputs, or two .npz files of outputs.

    Outputs are paired by position and judged with the thresholds of fp32, or with those of --gate. Exits 0 where they
    agree, 8 where they differ beyond the gate. With --per-node the values inside are compared too.
    """
    if b is None and not (per_node and dump):
        raise click.UsageError("Missing argument 'B' (only --per-node with --dump goes without it).")
    if per_node or dump:
        _per_node(a, b or a, dump or "", parse_gate(gates), loading, as_json=as_json)
        return
    assert b is not None
    overrides = parse_gate(gates, metric_names(metrics))
    left, right = (load_options(str(path), loading) for path in (a, b))
    result = run_diff(DiffOptions(left=left, right=right, metrics=metrics))
    verdict = judge(result.report, "fp32", overrides)
    error = None if verdict.passed else gate_failed(verdict, str(b), code="CNV-8002")
    if as_json:
        document = as_document(result, verdict) | {"error": error.as_json() if error else None}
        echo(msgspec.json.encode(document).decode())
        raise click.exceptions.Exit(error.exit_code if error else 0)
    echo("\n".join(as_text(result, verdict)))
    if error:
        raise error


def _per_node(a: Path, b: Path, dump: str, gate: dict[str, float], loading: dict[str, Any], *, as_json: bool) -> None:
    from convert.commands.diff_nodes import show_nodes

    left, right = (load_options(str(path), loading) for path in (a, b))
    limit = gate.get("rel_l2", THRESHOLDS["fp32"].rel_l2)
    options = DiffOptions(left=left, right=right)
    where = str(Path(dump).absolute()) if dump else ""
    found = in_worker("convert.stages.diff_nodes:run_nodes", options, limit, where, kind=NodeDiff)
    show_nodes(found, str(a), dump or str(b), as_json=as_json)


def run_diff(options: DiffOptions) -> DiffResult:
    """Run the comparison in a worker process, which may crash without harm.

    Raises what :func:`convert.stages.diff.run_both` raises, and GateFailed CNV-8003 where the worker's process ended.
    """
    return in_worker("convert.stages.diff:run_both", options, kind=DiffResult)


def in_worker(function: str, options: DiffOptions, *more: Any, kind: type[R]) -> R:
    """Call a stage of ``diff`` in a worker of its own. Raises GateFailed CNV-8003 where its process ended."""
    from convert.host import Limits, StageHost, WorkerDied
    from convert.settings import load_settings, stage_limits

    with temporary_folder("convert-diff") as folder:
        with StageHost(Path(folder) / "worker.log", preload=("numpy",)) as host, host.worker() as worker:
            try:
                limits = Limits(**stage_limits(load_settings({})), folder=str(folder))
                answer = worker.call(function, options, *more, str(folder), limits=limits)
            except WorkerDied as death:
                raise GateFailed(
                    "CNV-8003",
                    f"running {Path(options.left.path).name} or {Path(options.right.path).name} ended: {death.cause}",
                    hint="native code crashed, or the system ended it for want of memory; convert each file alone to "
                    "see which one it is",
                ) from death
        return msgspec.json.decode(answer.value, type=kind)


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
