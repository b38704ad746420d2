"""Two graphs on the same samples, value by value: the first node of B whose output departs from A's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from onnx import ModelProto, ValueInfoProto

from convert.arrays import Array, load_npz
from convert.bigmodel import external_tensors
from convert.graphs import read_model
from convert.nodewise.align import By, align, frontier, relative_error
from convert.nodewise.segment import run_piece
from convert.nodewise.values import Departure, NodeDiff
from convert.ort import SessionSettings, open_session, run_session
from convert.precision.emulate import Watched
from convert.precision.flow import Flow, flow_of, prepared
from convert.precision.policy import BF16, F16, F32, F64
from convert.precision.probes import Prober
from convert.precision.shapes import shapes_of
from convert.values import OnnxGraph

ELEMENTS = 1024
LISTED = 50
RUN_ALONE = 12
"""Departing nodes that are run alone, the first ones: those after them mostly pass errors on."""
FLOATS = (F32, F16, BF16, F64)


class Side:
    """One graph: its model, its flow, and elements of its float values for a sample."""

    def __init__(self, graph: OnnxGraph, scratch: Path) -> None:
        self.graph = graph
        self.model: ModelProto = prepared(read_model(graph.model_path))
        self.flow: Flow = flow_of(self.model)
        self.scratch = scratch
        self._watched: Watched | None = None

    def elements(self, feed: Mapping[str, Array]) -> dict[str, Array]:
        """Elements of every float value of the main graph, gathered at the same places on both sides."""
        if self._watched is None:
            copy = ModelProto.FromString(self.model.SerializeToString())
            wanted = {
                value
                for step in self.flow.steps
                if not step.inside
                for value in step.outputs
                if self.flow.types.get(value) in FLOATS
            }
            shapes = {name: array.shape for name, array in feed.items()}
            prober, outputs = Prober(shapes_of(self.model, shapes), ELEMENTS), len(copy.graph.output)
            probes = prober.add(copy, wanted, looks="elements", kinds=self.flow.types)
            self._watched = Watched(
                copy,
                probes,
                outputs,
                order=list(self.flow.makers),
                weights=self.graph.model_path.parent,
                scratch=self.scratch,
            )
        return {name: reading.sample for name, reading in self._watched.run(feed).readings.items()}

    def whole(self, names: Sequence[str], feed: Mapping[str, Array]) -> dict[str, Array]:
        """Whole arrays of a few values, in float32 where they are floats."""
        asked = [name for name in dict.fromkeys(names) if name in self.flow.makers]
        found = {name: feed[name] for name in names if name in feed}
        if not asked:
            return found
        copy = ModelProto.FromString(self.model.SerializeToString())
        del copy.graph.output[:]
        copy.graph.output.extend(ValueInfoProto(name=name) for name in asked)
        settings = SessionSettings(level="off", big=bool(external_tensors(copy)))
        path = self.graph.model_path.with_name("whole.onnx")
        path.write_bytes(copy.SerializeToString())
        try:
            return found | dict(zip(asked, run_session(open_session(path, settings), feed), strict=True))
        finally:
            path.unlink()

    def close(self) -> None:
        """Let go of the session."""
        if self._watched is not None:
            self._watched.close()


def compare_nodes(left: OnnxGraph, right: OnnxGraph, limit: float, scratch: Path) -> NodeDiff:
    """Compare two graphs node by node on A's samples. Inputs are paired by name, else by position.

    Raises :class:`convert.ort.SessionFailed` where one of them can't be run.
    """
    a, b = Side(left, scratch / "a"), Side(right, scratch / "b")
    try:
        return _compared(a, b, limit)
    finally:
        a.close()
        b.close()


def _compared(a: Side, b: Side, limit: float) -> NodeDiff:
    feeds = [load_npz(a.graph.path(f"samples/{number:03d}.npz")) for number in range(a.graph.sample_count)]
    pairs: dict[str, tuple[str, By]] = {}
    errors: dict[str, float] = {}
    worst: dict[str, int] = {}
    for number, feed in enumerate(feeds):
        ours, theirs = a.elements(feed), b.elements(fed(b.flow, a.flow, feed))
        pairs = pairs or align(a.flow, b.flow, ours, theirs)
        for name, (counterpart, _) in pairs.items():
            if name in theirs and counterpart in ours and theirs[name].size == ours[counterpart].size:
                error = relative_error(ours[counterpart], theirs[name])
                if error >= errors.get(name, 0.0):
                    errors[name], worst[name] = error, number
    departed = [value for step in b.flow.steps for value in step.outputs if errors.get(value, 0.0) > limit]
    rows = [_row(a, b, value, pairs, errors) for value in departed[:LISTED]]
    rows = _with_made(a, b, rows, pairs, [feeds[worst[value]] for value in departed[:LISTED]])
    counts = {by: sum(found == by for _, found in pairs.values()) for by in ("name", "structure", "numbers")}
    made = [row for row in rows if row.made is not None and row.made > limit / 2]
    return NodeDiff(
        limit=limit,
        aligned=len(pairs),
        values=sum(b.flow.types.get(value) in FLOATS for step in b.flow.steps for value in step.outputs),
        by=counts,
        first=made[0] if made else (rows[0] if rows else None),
        departures=tuple(rows),
    )


def fed(flow: Flow, other: Flow, feed: Mapping[str, Array]) -> dict[str, Array]:
    """A feed of one graph under the input names of another: by name where all are there, else by position."""
    if set(flow.inputs) <= feed.keys():
        return {name: feed[name] for name in flow.inputs}
    return dict(zip(flow.inputs, (feed[name] for name in other.inputs if name in feed), strict=False))


def _row(a: Side, b: Side, value: str, pairs: Mapping[str, tuple[str, By]], errors: Mapping[str, float]) -> Departure:
    step = b.flow.steps[b.flow.makers[value]]
    counterpart, by = pairs[value]
    maker = a.flow.makers.get(counterpart)
    before = [errors.get(name, 0.0) for name in frontier(b.flow, value, pairs)]
    return Departure(
        node=step.name,
        op=step.op,
        module=step.module,
        output=value,
        counterpart=counterpart,
        counterpart_node=a.flow.steps[maker].name if maker is not None else "",
        by=by,
        error=errors[value],
        arriving=max(before, default=0.0),
    )


def _with_made(
    a: Side,
    b: Side,
    rows: Sequence[Departure],
    pairs: Mapping[str, tuple[str, By]],
    feeds: Sequence[Mapping[str, Array]],
) -> list[Departure]:
    """What the first departing nodes make by themselves, of A's exact numbers."""
    done = list(rows)
    for place, (row, feed) in enumerate(zip(rows[:RUN_ALONE], feeds, strict=False)):
        edge = frontier(b.flow, row.output, pairs)
        names = {name: pairs[name][0] if name in pairs else name for name in edge}
        named = dict(zip(b.flow.inputs, a.flow.inputs, strict=False))
        wanted = [named.get(source, source) for source in names.values()] + [row.counterpart]
        ours = a.whole(wanted, feed)
        exact = {
            name: ours[named.get(source, source)] for name, source in names.items() if named.get(source, source) in ours
        }
        alone = run_piece(b.model, b.flow, row.output, exact, weights=b.graph.model_path.parent)
        if alone is not None and row.counterpart in ours and alone.size == ours[row.counterpart].size:
            made = relative_error(ours[row.counterpart], np.asarray(alone))
            done[place] = msgspec.structs.replace(row, made=made, reason=_reason(row, made))
    return done


def _reason(row: Departure, made: float) -> str:
    if made >= row.error / 2:
        return "made here: the same error comes out of exact inputs"
    if made <= row.error / 10:
        return "passed on: exact inputs give exact numbers here"
    return "partly made here, partly passed on"
