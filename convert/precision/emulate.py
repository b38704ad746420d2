"""Emulated models: the fp32 graph with every stored value rounded, computing in float32 between the roundings.

It is the caster's own work (``convert.precision.caster``) with a policy that computes everything wide, so that what a
forecast keeps in fp32 is what a compiled mixed graph keeps.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, numpy_helper

from convert.arrays import Array
from convert.bigmodel import external_tensors, is_external, nbytes, place_weights
from convert.ort import Level, SessionSettings, open_session, run_session
from convert.precision.caster import Caster
from convert.precision.policy import POLICIES
from convert.precision.probes import Probes
from convert.precision.readings import Reader, Readings
from convert.precision.types import plain_domain
from convert.values import Precision
from convert.walking import graphs_in

POLICY: Mapping[Precision, str] = {"fp16": "as_fp16", "mixed": "as_fp16", "bf16": "as_bf16"}
NARROW = (TensorProto.FLOAT16, TensorProto.BFLOAT16)
WIDEN_UP_TO = 256 << 20
"""Rounded weights are widened ahead of the run up to this many bytes; bigger ones in every run, to save memory."""


class Candidate(NamedTuple):
    """A model whose numbers are compared with the exact ones; ``kinds``: of values that are not float32 in it."""

    model: ModelProto
    kinds: Mapping[str, str] = MappingProxyType({})


def emulated(model: ModelProto, precision: Precision, keep: frozenset[str]) -> Candidate:
    """A copy of a prepared model that rounds like a precision; nodes of ``keep`` compute and store float32."""
    made: ModelProto = ModelProto.FromString(model.SerializeToString())
    opsets = {plain_domain(entry.domain): entry.version for entry in made.opset_import}
    caster = Caster(POLICIES[POLICY[precision]], opsets, keep)
    caster.cast_graph(made.graph)
    _widen_weights(made.graph)
    return Candidate(made, caster.stored)


def _widen_weights(graph: GraphProto) -> None:
    """Do the casts of rounded weights once and for all, where there is memory for it (in place)."""
    narrow = {t.name: t for t in graph.initializer if t.data_type in NARROW and not is_external(t)}
    if 2 * sum(nbytes(tensor) for tensor in narrow.values()) > WIDEN_UP_TO:
        return
    outputs = {value.name for value in graph.output}
    nodes = []
    for node in graph.node:
        wide = node.op_type == "Cast" and node.attribute[0].i == TensorProto.FLOAT and node.output[0] not in outputs
        if wide and node.input[0] in narrow:
            values = numpy_helper.to_array(narrow[node.input[0]]).astype(np.float32)
            graph.initializer.append(numpy_helper.from_array(values, node.output[0]))
        else:
            nodes.append(type(node).FromString(node.SerializeToString()))
    del graph.node[:]
    graph.node.extend(nodes)


class Observed(NamedTuple):
    """One run: the model's own outputs in order, and what the probes told."""

    outputs: list[Array]
    readings: Readings

    @property
    def nbytes(self) -> int:
        """Bytes that are held."""
        return self.readings.nbytes + sum(output.nbytes for output in self.outputs)


class Watched:
    """A model with probes, opened in ONNX Runtime; ``close`` removes its files.

    ``order``: of the tensors in what it tells. ``weights``: the folder that external weights lie in. ``scratch``: a
    folder for files of this model alone. ``frugal``: hold no more tensors at once than must be.
    """

    def __init__(
        self,
        model: ModelProto,
        probes: Probes,
        outputs: int,
        *,
        order: Sequence[str],
        weights: Path,
        scratch: Path,
        frugal: bool = False,
    ) -> None:
        self._outputs = outputs
        self._scratch = scratch
        # Nodes that stand for one node share its name, which ONNX Runtime refuses.
        for node in (node for graph in graphs_in(model.graph) for node in graph.node):
            node.name = ""
        # Layouts that suit the machine are faster, and their reordering holds several copies of large tensors at once.
        level: Level = "extended" if frugal else "all"
        settings = SessionSettings(level=level, big=bool(external_tensors(model)), as_listed=True, frugal=frugal)
        source: Path | bytes
        if settings.big:
            scratch.mkdir(parents=True, exist_ok=True)
            source = scratch / "model.onnx"
            place_weights(model, weights, scratch / "model.onnx.data")
            source.write_bytes(model.SerializeToString())
        else:
            source = model.SerializeToString()
        self._session = open_session(source, settings)
        names = [value.name for value in self._session.get_outputs()]
        self._reader = Reader(probes, {name: place for place, name in enumerate(names)}, order)

    def run(self, feed: Mapping[str, Array]) -> Observed:
        """Run once. Raises :class:`convert.ort.SessionFailed`."""
        answer = run_session(self._session, feed)
        return Observed(answer[: self._outputs], self._reader.read(answer))

    def close(self) -> None:
        """Let go of the session and remove its files."""
        del self._session
        shutil.rmtree(self._scratch, ignore_errors=True)
