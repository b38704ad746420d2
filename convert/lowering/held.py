"""A light copy of a model to work on: big tensors are set aside and put back at the end, never copied in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import onnx
from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from convert.walking import subgraphs

BIG = 1 << 14
"""From this many bytes on a tensor is set aside."""
PLACE = "held"
MAX_ROUNDS = 4


@dataclass(frozen=True)
class Held:
    """The light model, and the tensors of the given model that stand behind its placeholders."""

    model: ModelProto
    payload: tuple[TensorProto, ...]


def hold(model: ModelProto) -> Held:
    """A copy in which every big initializer and constant is a placeholder. Reads no external data."""
    light = ModelProto()
    for descriptor, value in model.ListFields():
        if descriptor.name == "graph":
            continue
        if hasattr(value, "extend"):
            getattr(light, descriptor.name).extend(value)
        else:
            setattr(light, descriptor.name, value)
    payload: list[TensorProto] = []
    _copy_graph(model.graph, light.graph, payload)
    return Held(light, tuple(payload))


def _copy_graph(source: GraphProto, copy: GraphProto, payload: list[TensorProto]) -> None:
    for descriptor, value in source.ListFields():
        if descriptor.name == "initializer":
            for tensor in value:
                _place(tensor, copy.initializer.add(), payload)
        elif hasattr(value, "extend"):
            getattr(copy, descriptor.name).extend(value)
        else:
            setattr(copy, descriptor.name, value)
    for node in copy.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR and is_big(attribute.t):
                original = TensorProto()
                original.CopyFrom(attribute.t)
                attribute.t.Clear()
                _place(original, attribute.t, payload)


def _place(tensor: TensorProto, place: TensorProto, payload: list[TensorProto]) -> None:
    if not is_big(tensor):
        place.CopyFrom(tensor)
        return
    place.name, place.data_type = tensor.name, tensor.data_type
    place.dims.extend(tensor.dims)
    place.data_location = TensorProto.EXTERNAL
    place.external_data.add(key=PLACE, value=str(len(payload)))
    place.external_data.add(key="location", value=PLACE)
    payload.append(tensor)


def is_big(tensor: TensorProto) -> bool:
    """Whether a tensor holds its own data, and much of it."""
    return tensor.data_location != TensorProto.EXTERNAL and tensor.ByteSize() >= BIG


def release(held: Held) -> ModelProto:
    """Put the big tensors back in their places."""
    for tensor in _tensors(held.model.graph):
        keys = {entry.key: entry.value for entry in tensor.external_data}
        if PLACE in keys and keys.get("location") == PLACE:
            name = tensor.name
            tensor.CopyFrom(held.payload[int(keys[PLACE])])
            tensor.name = name
    return held.model


def _tensors(graph: GraphProto) -> Iterator[TensorProto]:
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == onnx.AttributeProto.TENSOR:
                yield attribute.t
        for inner in subgraphs(node):
            yield from _tensors(inner)


def drop_unused(model: ModelProto) -> None:
    """Take out what nothing reads any more: initializers, small helpers of rules; and stale value infos."""
    for _ in range(MAX_ROUNDS):
        if not _drop(model.graph, _used_names(model.graph)):
            return


def _used_names(graph: GraphProto) -> set[str]:
    used = {info.name for info in graph.output}
    for node in graph.node:
        used.update(node.input)
        for inner in subgraphs(node):
            used |= _used_names(inner)
    return used


def _drop(graph: GraphProto, used: set[str]) -> bool:
    inputs = {info.name for info in graph.input}
    dropped = keep(graph.initializer, [t.name in used or t.name in inputs for t in graph.initializer])
    dropped |= keep(graph.node, [_is_needed(node, used) for node in graph.node])
    made = {name for node in graph.node for name in node.output} | inputs | {t.name for t in graph.initializer}
    keep(graph.value_info, [info.name in made for info in graph.value_info])
    for node in graph.node:
        for inner in subgraphs(node):
            dropped |= _drop(inner, used)
    return dropped


def _is_needed(node: NodeProto, used: set[str]) -> bool:
    helper = node.op_type in ("Constant", "Shape", "Gather") and not node.domain
    return not helper or bool(used.intersection(node.output))


def keep(items: Any, wanted: list[bool]) -> bool:
    """Keep some entries of a repeated field; says whether any went."""
    if all(wanted):
        return False
    kept = []
    for item, stays in zip(items, wanted, strict=True):
        if stays:
            copy = type(item)()
            copy.CopyFrom(item)
            kept.append(copy)
    del items[:]
    items.extend(kept)
    return True
