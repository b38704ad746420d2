"""Two ONNX graphs node by node, or one beside a vendor's dump. Runs in the worker."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import msgspec

from convert.arrays import load_npz
from convert.errors import UsageError
from convert.nodewise.departs import LISTED, Side, compare_nodes
from convert.nodewise.dumps import against, by_value_name, read_dump
from convert.nodewise.values import Departure, NodeDiff
from convert.ort import SessionFailed
from convert.stages.adopt import adopt_onnx
from convert.stages.diff_models import samples_for
from convert.stages.diff_options import DiffOptions
from convert.stages.load import load_model
from convert.values import ExportOptions, LoadOptions, OnnxGraph


def run_nodes(options: DiffOptions, limit: float, dump: str, folder: Path) -> NodeDiff:
    """Compare B with A node by node, or a dump with A; ``limit``: the relative L2 from which a value departs.

    Raises UsageError CNV-2060 where a model can't be run, CNV-2323 where a side is no ONNX file, CNV-2324 for a dump
    that can't be read, CNV-2325 where no value of one side is known in the other, and LoadError for a model file.
    """
    left, loaded = _adopted(options.left, folder / "a")
    if dump:
        return _beside_dump(left, Path(dump), limit, folder)
    shared = samples_for(options.right, loaded, folder / "shared")
    right_options = msgspec.structs.replace(options.right, samples=str(shared), inputs=(), dims=())
    right, _ = _adopted(right_options, folder / "b")
    try:
        return _compared(compare_nodes(left, right, limit, folder / "runs"), options.right.path)
    except SessionFailed as failure:
        raise _not_run(options.right.path, str(failure)) from failure
    finally:
        shutil.rmtree(folder / "runs", ignore_errors=True)


def _adopted(options: LoadOptions, folder: Path) -> tuple[OnnxGraph, Any]:
    loaded = load_model(options, folder / "loaded")
    if loaded.format != "onnx":
        raise UsageError(
            "CNV-2323",
            f"--per-node compares ONNX graphs, and {Path(options.path).name} is {loaded.format}",
            hint="convert it first (`convert MODEL --target cpu` leaves model.onnx), or leave --per-node out",
        )
    (folder / "graph").mkdir(parents=True)
    graph = adopt_onnx(loaded, options, ExportOptions(), folder / "graph")
    if "reference/000.npz" not in {entry.name for entry in graph.files}:
        raise _not_run(options.path, "; ".join(note.text for note in graph.notes if note.level == "warning"))
    return graph, loaded


def _not_run(path: str, why: str) -> UsageError:
    return UsageError(
        "CNV-2060",
        f"{Path(path).name} can't be run on the samples: {why or 'no outputs'}",
        hint="give inputs that suit both models with --samples; `convert check` tells more of one model alone",
    )


def _compared(found: NodeDiff, other: str) -> NodeDiff:
    """Refuse to call two sides alike of which nothing was compared."""
    if not found.aligned:
        raise UsageError(
            "CNV-2325",
            f"nothing was compared: none of the {found.values} float values of {Path(other).name} is known in A",
            hint="compare the outputs alone (without --per-node); a dump's names must be those of A's values",
        )
    return found


def _beside_dump(graph: OnnxGraph, path: Path, limit: float, folder: Path) -> NodeDiff:
    """A's values beside what a vendor's tool left of the first sample."""
    told = read_dump(path)
    if isinstance(told, list):
        rows = tuple(told[:LISTED])
        return NodeDiff(
            limit=limit, aligned=len(told), values=len(told), first=rows[0] if rows else None, departures=rows
        )
    side = Side(graph, folder / "runs")
    feed = load_npz(graph.path("samples/000.npz"))
    told = by_value_name(told, side.flow)
    known = [name for name in told if name in side.flow.makers]
    errors = against(told, side.whole(known, feed), limit)
    departed = []
    for step in side.flow.steps:
        for value in step.outputs:
            if value in errors:
                before = max((errors.get(name, 0.0) for name in step.inputs), default=0.0)
                departed.append(
                    Departure(
                        node=step.name, op=step.op, module=step.module, output=value, counterpart=value,
                        counterpart_node=step.name, by="dump", error=errors[value], arriving=before,
                    )
                )  # fmt: skip
    rows = tuple(departed[:LISTED])
    first = next((row for row in rows if row.error > 3 * row.arriving), rows[0] if rows else None)
    return _compared(
        NodeDiff(limit=limit, aligned=len(known), values=len(told), first=first, departures=rows), str(path)
    )
