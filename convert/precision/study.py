"""One graph under study: run exactly and emulated on its samples, measured, compared and judged.

exact run ──▶ elements and ranges of every tensor ─┐
emulated run ─▶ elements of every tensor ──────────┴▶ table of errors ─▶ blame
           └──▶ outputs against the reference ─▶ metrics ─▶ the gate's verdict
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
import numpy as np
from onnx import ModelProto

from convert.arrays import Array, load_npz
from convert.compare import Compared, Comparison, compare_outputs, fold
from convert.gate import judge
from convert.graphs import opset_of, read_model
from convert.lowering import lower
from convert.metrics import OutputMetrics
from convert.precision.blame import Blame, Blamer, WeightError, effects
from convert.precision.bounds import Bounds
from convert.precision.emulate import Candidate, Observed, Watched, emulated
from convert.precision.flow import Flow, flow_of, prepared
from convert.precision.policy import F32
from convert.precision.probes import Looks, Prober, Probes, spread_over
from convert.precision.readings import Reading, Readings
from convert.precision.rounding import FORMATS, Format, rounded
from convert.precision.shapes import shapes_of
from convert.precision.stats import Rounder, Table, measure
from convert.precision.sums import stored_sums
from convert.precision.weight_errors import weight_errors
from convert.ties import TieCount, read_ties
from convert.values import ForecastOptions, GateVerdict, Note, OnnxGraph, Precision, ValidationReport

DEFAULT_MEMORY = 1 << 30
MOST_ELEMENTS, LEAST_ELEMENTS = 1024, 32
"""Elements gathered of one tensor, between which the number of tensors decides."""
ALL_ELEMENTS = 1 << 16
"""Elements gathered of all tensors together in one run, at most."""
BYTES_OF_ONE = 4 * 4
"""Bytes of one element in an emulated run: as it is made, rounded, widened again, and room to move them."""
PAIRS_SINCE = 13
"""The opset from which QuantizeLinear has scales for each channel; a study of int8 raises a graph to it."""


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """One emulated pass over all samples with some nodes kept in fp32. ``table`` is the worst of the samples."""

    keep: frozenset[str]
    outputs: tuple[OutputMetrics, ...]
    verdict: GateVerdict
    table: Table
    notes: tuple[Note, ...] = ()

    @property
    def failing(self) -> tuple[str, ...]:
        """The outputs that break the gate, worst first; those that differ at all where none does."""
        named = {output.name: output for output in self.outputs}
        broken = [
            name for name in named if any(text.startswith(f"output {name!r}: ") for text in self.verdict.failures)
        ]
        return tuple(sorted(broken, key=lambda name: -(named[name].rel_l2 or 0.0)))


class Study:
    """The graph, its samples and its exact run, for evaluations in one narrow precision."""

    def __init__(self, graph: OnnxGraph, options: ForecastOptions, scratch: Path) -> None:
        self.graph = graph
        self.options = options
        self.precision: Precision = options.narrow if options.precision == "mixed" else options.precision
        self.fmt: Format | None = FORMATS.get(self.precision)
        self.scratch = scratch
        self.passes = 0
        """Passes over the whole graph and all samples so far: the exact one, and one for each evaluation."""
        self.notes: tuple[Note, ...] = ()
        self.model, self.sums = self._read()
        self.flow: Flow = flow_of(self.model)
        self.nodes = {step.name: step for step in self.flow.steps if not step.link}
        self.tensors = self._tensors()
        self.weights: dict[str, WeightError] = self._weight_errors()
        self.bounds = Bounds(self.flow, self.weights)
        self.prober = self._prober()
        self._numbers = itertools.count()
        self._exact: Watched | None = None
        self._held: dict[int, Observed] = {}
        self._searched: tuple[set[str], Watched] | None = None

    @property
    def memory(self) -> int:
        """Bytes that may be held of tensors."""
        return self.options.memory or DEFAULT_MEMORY

    @property
    def frugal(self) -> bool:
        """Whether tensors are large beside the budget, or of unknown size, so that few may be held at once."""
        values = [name for name in self.tensors if name not in self.flow.inputs]
        sizes = [self.prober.sizes.get(name, 0) for name in values]
        return not all(sizes) or BYTES_OF_ONE * sum(sizes) > self.memory

    @property
    def unit(self) -> float:
        """The largest relative error of one rounding that is within the range."""
        return self.fmt.unit if self.fmt is not None else 2.0**-8

    # ------------------------------------------------------------------------------------------------------- set-up

    def _read(self) -> tuple[ModelProto, tuple[str, ...]]:
        model = read_model(self.graph.model_path)
        if self.precision == "int8" and opset_of(model) < PAIRS_SINCE:
            # Toolchains that calibrate themselves take graphs that are too old for pairs; the study needs them.
            model = lower(model, PAIRS_SINCE)
        model = prepared(model)
        sums: tuple[str, ...] = ()
        if self.options.accumulate != "fp32" and self.precision == "fp16":
            sums = stored_sums(model, flow_of(model).types)
        return model, sums

    def _tensors(self) -> list[str]:
        """Float32 inputs and values that some node computes, or joins from several."""
        flow = self.flow
        names = [name for name in flow.inputs if flow.types.get(name) == F32]
        for step in flow.steps:
            joined = len(list(flow.feeders(step))) > 1 and not (step.link and step.inside)
            if not step.moves or joined:
                names += flow.floats(step.outputs)
        return list(dict.fromkeys(names))

    def _weight_errors(self) -> dict[str, WeightError]:
        if self.fmt is None:
            return {}
        return weight_errors(self.flow.weights.values(), self.graph.model_path.parent, self.precision, self.fmt)

    def _prober(self) -> Prober:
        """Elements of each tensor by how many there are, and by the memory that one sample's may take."""
        budget = min(ALL_ELEMENTS, self.memory // 64)
        elements = max(LEAST_ELEMENTS, min(MOST_ELEMENTS, budget // max(len(self.tensors), 1)))
        return Prober(shapes_of(self.model, self._shapes()), elements, self.bounds.follows)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs that all samples share."""
        found: dict[str, set[tuple[int, ...]]] = {}
        for number in range(self.graph.sample_count):
            for name, array in self.feed(number).items():
                found.setdefault(name, set()).add(array.shape)
        return {name: next(iter(shapes)) for name, shapes in found.items() if len(shapes) == 1}

    def feed(self, number: int) -> dict[str, Array]:
        """The inputs of a sample by name."""
        return load_npz(self.graph.path(f"samples/{number:03d}.npz"))

    def reference(self, number: int) -> list[Array]:
        """The reference outputs of a sample in order."""
        arrays = load_npz(self.graph.path(f"reference/{number:03d}.npz"))
        return [arrays[key] for key in sorted(arrays, key=int)]

    # ---------------------------------------------------------------------------------------------------------- runs

    def watched(self, candidate: Candidate, *, exact: bool) -> Watched:
        """A model with probes at every tensor under study, opened. Changes the model."""
        inputs = set(self.flow.inputs)
        wanted = {name for name in self.tensors if name not in inputs}
        outputs = len(candidate.model.graph.output)
        looks: Looks = "norms" if exact else "elements"
        probes = self.prober.add(candidate.model, wanted, looks=looks, kinds=candidate.kinds)
        return self._opened(candidate.model, probes, outputs)

    def _opened(self, model: ModelProto, probes: Probes, outputs: int) -> Watched:
        place = self.scratch / f"run{next(self._numbers)}"
        return Watched(
            model,
            probes,
            outputs,
            order=self.tensors,
            weights=self.graph.model_path.parent,
            scratch=place,
            frugal=self.frugal,
        )

    def _copy(self) -> ModelProto:
        copy: ModelProto = ModelProto.FromString(self.model.SerializeToString())
        return copy

    def open_exact(self) -> Watched:
        """The exact graph, opened once."""
        if self._exact is None:
            self.passes += 1
            self._exact = self.watched(Candidate(self._copy()), exact=True)
        return self._exact

    def exact(self, number: int, feed: Mapping[str, Array]) -> Observed:
        """The exact run of a sample; its readings are held while there is memory for them."""
        if number in self._held:
            return self._held[number]
        observed = self.run_exact(feed)
        if 2 * (self.held + observed.nbytes) <= self.memory:
            self._held[number] = observed
        return observed

    @property
    def held(self) -> int:
        """Bytes that are held of the exact runs."""
        return sum(observed.nbytes for observed in self._held.values())

    def run_exact(self, feed: Mapping[str, Array]) -> Observed:
        """One exact run, and a search of what may be too large."""
        observed = self.open_exact().run(feed)
        readings = self._joined(self._input_readings(feed), observed.readings)
        return Observed(observed.outputs, self._look_again(readings, feed))

    def run_other(self, watched: Watched, feed: Mapping[str, Array], exact: Observed) -> Observed:
        """One run of a candidate; its inputs are those of the exact run, rounded."""
        observed = watched.run(feed)
        return Observed(observed.outputs, self._joined(self._stored_inputs(exact), observed.readings))

    def _joined(self, inputs: Iterator[tuple[str, Reading]], readings: Readings) -> Readings:
        return readings.after(Readings.of(inputs))

    def _look_again(self, told: Readings, feed: Mapping[str, Array]) -> Readings:
        """Search those tensors for their extremes of which some element may be too large, as their bound is.

        Most graphs have none. It takes another pass.
        """
        limit = self.fmt.overflows if self.fmt is not None else np.inf
        if self.bounds.within(told, limit, self._partly_seen):
            return told
        inputs = set(self.flow.inputs)
        large = {name for name, bound in self.bounds.of(told).items() if name in told and not bound < limit}
        large -= {name for name in large if name in inputs or self.prober.is_whole(name)}
        if not large:
            return told
        if self._searched is None or not large <= self._searched[0]:
            wanted = large
            if self._searched is not None:
                wanted = large | self._searched[0]
                self._searched[1].close()
            model = self._copy()
            outputs = len(model.graph.output)
            probes = self.prober.add(model, wanted, looks="ranges")
            self._searched = wanted, self._opened(model, probes, outputs)
            self.passes += 1
        return told.ranged(self._searched[1].run(feed).readings)

    def _partly_seen(self) -> list[str]:
        """The tensors of which not all elements are given out."""
        inputs = set(self.flow.inputs)
        return [name for name in self.tensors if name not in inputs and not self.prober.is_whole(name)]

    def _input_readings(self, feed: Mapping[str, Array]) -> Iterator[tuple[str, Reading]]:
        for name in self.flow.inputs:
            if self.flow.types.get(name) == F32 and name in feed and feed[name].size:
                flat = feed[name].reshape(-1)
                sample = (
                    flat if flat.size <= self.prober.elements else flat[spread_over(flat.size, self.prober.elements)]
                )
                yield name, Reading(sample, None, float(flat.min()), float(flat.max()))

    def candidate(self, keep: frozenset[str]) -> Candidate:
        """The emulated model."""
        return emulated(self.model, self.precision, keep)

    def keepable(self, name: str) -> bool:
        """Whether keeping a node of this name changes anything."""
        return bool(self.flow.floats(self.nodes[name].outputs))

    def rounder(self) -> Rounder:
        """How values are rounded where they are stored."""
        return lambda values, _: rounded(values, self.precision)

    def evaluate(self, keep: frozenset[str] = frozenset()) -> Evaluation:
        """One emulated pass over all samples. Raises :class:`convert.ort.SessionFailed`."""
        watched = self.watched(self.candidate(keep), exact=False)
        self.passes += 1
        tables: list[Table] = []
        ties = TieCount([spec.name for spec in self.graph.outputs])
        names = [spec.name for spec in self.graph.outputs]

        def compared() -> Iterator[Sequence[Compared]]:
            for number in range(self.graph.sample_count):
                feed = self.feed(number)
                exact = self.exact(number, feed)
                other = self.run_other(watched, feed, exact)
                table = measure(self.tensors, exact.readings, other.readings, self.rounder(), self.fmt)
                tables[:] = [tables[0].worst(table)] if tables else [table]
                reference = self.reference(number)
                outputs = ties.settle(reference, other.outputs, read_ties(self.graph, number))
                yield compare_outputs(reference, outputs, names)

        try:
            comparison = fold(compared())
        finally:
            watched.close()
        return Evaluation(
            keep=keep,
            outputs=comparison.outputs,
            verdict=self._judged(comparison),
            table=tables[0],
            notes=comparison.notes,
        )

    def unrounded(self) -> GateVerdict:
        """The gate's verdict on the exact run itself: what keeping every node in fp32 would give."""
        names = [spec.name for spec in self.graph.outputs]
        ties = TieCount(names)

        def compared() -> Iterator[Sequence[Compared]]:
            for number in range(self.graph.sample_count):
                reference = self.reference(number)
                outputs = self.exact(number, self.feed(number)).outputs
                yield compare_outputs(reference, ties.settle(reference, outputs, read_ties(self.graph, number)), names)

        return self._judged(fold(compared()))

    def _judged(self, comparison: Comparison) -> GateVerdict:
        report = ValidationReport(
            parent=self.graph.digest, ran_on="forecast", outputs=comparison.outputs, samples=comparison.samples
        )
        return judge(report, self.options.precision, self.options.gate)

    def _stored_inputs(self, exact: Observed) -> Iterator[tuple[str, Reading]]:
        for name in self.flow.inputs:
            if name in exact.readings:
                reading = exact.readings[name]
                sample = self.rounder()(reading.sample, np.zeros(reading.sample.size, np.int64))
                yield name, reading._replace(sample=sample)

    def blames(self, evaluation: Evaluation) -> tuple[Blame, ...]:
        """Where the errors of the failing outputs come from; of all outputs that differ, where none fails."""
        blamer = Blamer(self.flow, evaluation.table, self.weights, evaluation.keep)
        return tuple(blamer.output(name) for name in evaluation.failing or self.flow.outputs)

    def effects(self, evaluation: Evaluation) -> dict[str, dict[str, float]]:
        """Node → output → the relative L2 that its rounding leaves there."""
        return effects(self.blames(evaluation), self.owners)

    def owners(self, value: str) -> list[str]:
        """Whose the rounding of a value is: the node's that writes it; an input's, the nodes' that read it."""
        if value in self.flow.makers:
            return [self.flow.steps[self.flow.makers[value]].name]
        return [self.flow.steps[user].name for user in self.flow.users.get(value, ()) if not self.flow.steps[user].link]

    def close(self) -> None:
        """Let go of the exact runs."""
        if self._exact is not None:
            self._exact.close()
            self._exact = None
        if self._searched is not None:
            self._searched[1].close()
            self._searched = None
