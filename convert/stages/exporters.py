"""Which exporter's graph is taken: every attempt, how it was judged against torch, and the choice in words."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from convert.arrays import Array
from convert.exporter_faults import SilentFault, in_words, known_faults
from convert.exporter_verdict import ExporterVerdict
from convert.loading.torch_models import Call, OpenModel
from convert.ort import SessionFailed, exact_settings, run_samples
from convert.proof import departures
from convert.torch_export import ExporterFailed, TorchRun, probes, run_torch
from convert.values import LoadedModel, Note, OnnxGraph


@dataclass
class Attempt:
    """One exporter's graph, if it made one, and how it was judged. ``departed``: where it leaves torch on a probe."""

    exporter: str
    opset: int
    graph: OnnxGraph | None = None
    failure: str = ""
    wrong: bool = False
    faults: tuple[SilentFault, ...] = ()
    probed: tuple[str, ...] = ()
    departed: str = ""

    @property
    def right(self) -> bool:
        """Whether it gives torch's numbers on everything that it was judged on."""
        return self.graph is not None and not self.departed

    @property
    def refusal(self) -> str:
        """What speaks against it, in one line; empty where nothing does."""
        if self.graph is None:
            return f"{self.exporter}: {self.failure}"
        return f"{self.exporter}: right on the samples, but {self.departed}" if self.departed else ""


class Probing:
    """Trying exported graphs on calls that bring out known silent faults; what the model refuses is left out."""

    def __init__(self, model: OpenModel, loaded: LoadedModel, call: Call) -> None:
        self._model = model
        self._loaded = loaded
        self._call = call
        self._runs: dict[str, tuple[Call, TorchRun]] = {}
        self._refused: set[str] = set()

    def judge(self, attempts: Sequence[Attempt]) -> None:
        """Note on each attempt on which probes it was judged, and where it first departs: the same for all of them."""
        faults = {fault.name: fault for one in attempts for fault in one.faults}
        known = self._probes(list(faults.values()))
        for one in attempts:
            if one.graph is None or one.probed == (wanted := tuple(known)):
                continue
            departed = (self._fault(one.graph, what, *known[what]) for what in wanted if what not in one.probed)
            one.departed = one.departed or next(filter(None, departed), "")
            one.probed = wanted

    def _probes(self, faults: Sequence[SilentFault]) -> dict[str, tuple[Call, TorchRun]]:
        """The calls that the model takes, with what torch gives for each."""
        wanted = probes(self._loaded, self._call, faults)
        for what, call in wanted:
            if what in self._runs or what in self._refused:
                continue
            self._refused.add(what)
            with contextlib.suppress(ExporterFailed):
                self._runs[what] = call, run_torch(self._model, call)
        return {what: self._runs[what] for what, _ in wanted if what in self._runs}

    def _fault(self, graph: OnnxGraph, what: str, call: Call, run: TorchRun) -> str:
        feeds = [feed_of([spec.name for spec in graph.inputs], self._loaded, call)]
        try:
            outputs = run_samples(graph.model_path, feeds, exact_settings(graph.model_path))
        except SessionFailed as failure:
            return f"it fails on {what}: {failure}"
        if departed := departures(run.names, [run.outputs], outputs):
            return f"it gives other numbers than torch on {what}: {departed[0]}"
        return ""


def feed_of(wanted: list[str], loaded: LoadedModel, call: Call) -> dict[str, Array]:
    """The inputs that a graph kept, by name; leaves of a call come in the order of the signature."""
    leaves = {spec.name: leaf for spec, leaf in zip(loaded.inputs, call.leaves(), strict=True)}
    missing = [name for name in wanted if name not in leaves]
    if missing:
        raise ExporterFailed(f"the graph has inputs that the model does not have: {', '.join(missing)}")
    return {name: leaves[name] for name in wanted}


def best_of(attempts: Sequence[Attempt]) -> Attempt | None:
    """The first that is right on everything, else the first that is right on the samples; None where none is."""
    made = [one for one in attempts if one.graph is not None]
    return next((one for one in made if one.right), made[0] if made else None)


def told(chosen: Attempt, attempts: Sequence[Attempt], others: Sequence[tuple[str, str]]) -> OnnxGraph:
    """The chosen attempt's graph, with every verdict and the notes that say why it was chosen.

    ``others``: exporters that were not judged, each with why (empty: nothing could be learned from it).
    """
    assert chosen.graph is not None
    notes = [*_warnings(chosen, attempts), *_reasons(chosen, attempts, others)]
    verdicts = [_verdict(one, chosen) for one in attempts]
    verdicts += [
        ExporterVerdict(exporter=name, state="not judged", reason=why or _nothing_to_learn(chosen))
        for name, why in others
    ]
    return msgspec.structs.replace(chosen.graph, exporters=tuple(verdicts), notes=(*notes, *chosen.graph.notes))


def _warnings(chosen: Attempt, attempts: Sequence[Attempt]) -> list[Note]:
    notes = []
    before = [one.refusal for one in attempts[: attempts.index(chosen)] if one.refusal]
    if before:
        text = f"fell back to the {chosen.exporter} exporter: {' | '.join(before)}"
        notes.append(Note(level="warning", text=text))
    if chosen.departed:
        text = f"right on the samples, but {chosen.departed}; no exporter is right there"
        notes.append(Note(level="warning", text=text))
    return notes


def _reasons(chosen: Attempt, attempts: Sequence[Attempt], others: Sequence[tuple[str, str]]) -> list[Note]:
    notes = []
    right = [one.exporter for one in attempts if one.right]
    if len(right) > 1:
        where = f"on the samples and on {', '.join(chosen.probed)}" if chosen.probed else "on the samples"
        text = (
            f"{' and '.join(right)} were judged against torch {where}: all are right, and {chosen.exporter} goes first"
        )
        notes.append(Note(text=text))
    notes += [Note(text=f"{name} was not judged: {_nothing_to_learn(chosen)}") for name, why in others if not why]
    if chosen.faults and chosen.right and len(right) == 1:
        shown = f"it is right on {', '.join(chosen.probed)}" if chosen.probed else "no input at hand could bring it out"
        text = f"{chosen.exporter} is known to get this silently wrong: {in_words(chosen.faults)}; {shown}"
        notes.append(Note(level="info" if chosen.probed else "warning", text=text))
    return notes


def _nothing_to_learn(chosen: Attempt) -> str:
    known = ", ".join(fault.name for fault in known_faults(chosen.exporter))
    return f"nothing that {chosen.exporter} is known to get silently wrong ({known}) concerns this graph"


def _verdict(one: Attempt, chosen: Attempt) -> ExporterVerdict:
    if one is chosen:
        state, reason = "chosen", one.departed and f"right on the samples, but {one.departed}"
    elif one.graph is None:
        state, reason = "wrong" if one.wrong else "failed", one.failure
    else:
        state, reason = "wrong" if one.departed else "right", one.departed
    return msgspec.convert(
        {
            "exporter": one.exporter,
            "state": state,
            "opset": one.opset,
            "reason": reason,
            "concerns": [f"{fault.name}: {fault.what}" for fault in one.faults],
            "probes": one.probed,
        },
        ExporterVerdict,
    )
