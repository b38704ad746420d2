"""What torch's exporters are known to get silently wrong, and whether any of it can concern a graph.

An export costs seconds, so a second one is made only where it can tell something: where the graph in hand has what a
known fault of its exporter needs. Each fault was seen with torch 2.13 (exporters of ``torch.onnx``) by comparing the
exported graph with torch on inputs that bring it out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from onnx import ModelProto, TensorProto, numpy_helper

from convert.graphs import opset_of
from convert.walking import nodes_of
from op_registry.graph import Scope
from op_registry.infer import follow_types

ExporterName = Literal["dynamo", "torchscript"]
HIDDEN = -1e30
"""A number at or below this stands for minus infinity in a mask."""
SCATTERS = ("ScatterND", "ScatterElements")


@dataclass(frozen=True)
class Exported:
    """What an exporter gave. ``frozen``: where in the model (file and line) it took a branch by the sample's values."""

    proto: ModelProto
    frozen: tuple[str, ...] = ()


@dataclass(frozen=True)
class SilentFault:
    """Something that an exporter gets wrong without a word, and what a graph must have for it to matter."""

    name: str
    exporter: ExporterName
    what: str
    concerns: Callable[[Exported], bool]


def _masks_attention(exported: Exported) -> bool:
    """A Softmax, and a single number that stands for minus infinity."""
    softmax = any(node.op_type == "Softmax" for node in nodes_of(exported.proto))
    return softmax and any(value <= HIDDEN for value in _single_floats(exported.proto))


def _single_floats(model: ModelProto) -> Iterator[float]:
    """Constants of one floating point number, in the graph and its bodies."""
    held = [item.t for node in nodes_of(model) if node.op_type == "Constant" for item in node.attribute]
    for tensor in (*model.graph.initializer, *held):
        single = all(dim == 1 for dim in tensor.dims) and tensor.data_type in (TensorProto.FLOAT, TensorProto.FLOAT16)
        if single and tensor.data_location != TensorProto.EXTERNAL:
            yield float(numpy_helper.to_array(tensor).reshape(()))


def _scatters_plainly(exported: Exported) -> bool:
    """A scatter that keeps one of several values for a place: what an addition becomes."""
    return any(
        node.op_type in SCATTERS and all(item.name != "reduction" or item.s == b"none" for item in node.attribute)
        for node in nodes_of(exported.proto)
    )


def _divides_integers(exported: Exported) -> bool:
    """A Div of integers that the graph gets from its inputs' values (sizes are never below zero)."""
    nodes = list(exported.proto.graph.node)
    if not any(node.op_type == "Div" for node in nodes):
        return False
    scope = Scope(None, exported.proto.graph)
    firsts = follow_types(nodes, [(node.domain, node.op_type) for node in nodes], scope, opset_of(exported.proto))
    sized = {tensor.name for tensor in exported.proto.graph.initializer}
    for node, dtype in zip(nodes, firsts, strict=True):
        given = [name for name in node.input if name]
        if node.op_type in ("Shape", "Size", "Constant") or (given and all(name in sized for name in given)):
            sized.update(node.output)
        elif node.op_type == "Div" and dtype.startswith("int"):
            return True
    return False


FAULTS: tuple[SilentFault, ...] = (
    SilentFault("masked-rows", "dynamo", "an attention row that is masked whole becomes a mean", _masks_attention),
    SilentFault(
        "repeated-index", "torchscript", "of additions at an index that comes twice the last is kept", _scatters_plainly
    ),
    SilentFault("floor-division", "torchscript", "a division of integers rounds towards zero", _divides_integers),
    SilentFault(
        "frozen-branch",
        "torchscript",
        "a branch on values is taken as the sample took it",
        lambda one: bool(one.frozen),
    ),
)
"""Every silent fault known of the exporters. Attention is written as one operator from opset 23 on, which is right."""


def known_faults(exporter: str) -> tuple[SilentFault, ...]:
    """What is known of one exporter."""
    return tuple(fault for fault in FAULTS if fault.exporter == exporter)


def concerning(exporter: str, exported: Exported) -> tuple[SilentFault, ...]:
    """The known faults of an exporter that can matter in the graph that it made."""
    return tuple(fault for fault in known_faults(exporter) if fault.concerns(exported))


def in_words(faults: Sequence[SilentFault]) -> str:
    """Faults in one line: names, and what each does."""
    return "; ".join(f"{fault.name} ({fault.what})" for fault in faults)
