"""ONNX graphs: read, lint, lowering, support check, adoption and what the rewrites decide. No session runs."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

import onnx
from fuzz_kit import ODD_NUMBERS, Target, chance_of, mutate_bytes, mutate_text, written
from google.protobuf.message import DecodeError, Message
from onnx import ModelProto

from convert.graphs import facts, read_model
from convert.loading import sniff
from convert.loading.onnx_files import _outline_file, outline_onnx
from convert.loading.onnx_inputs import check_readable, onnx_specs
from convert.lowering import LoweringRefused, lint, lower
from convert.lowering.sound import require_sound
from convert.rewrites import RULES, load_rule
from convert.stages.adopt import _in_order
from op_registry.judge import judge_model
from op_registry.targets import find_target

JUDGED = ("Ascend910B3", "K100", "cpu", "MLU370-X4", "A100", "C500", "MI210")
OPSETS = (11, 12, 13, 15, 17, 18, 19, 21, 23)
ARGUMENTS = {"fix-dims": "N=1"}


def read(data: bytes) -> None:
    """What ``convert check`` and ``convert graph`` do with a file, ONNX Runtime aside."""
    path = written(data, "model.onnx")
    sniff._identify.cache_clear()
    _outline_file.cache_clear()
    found = sniff.identify(path)
    if found.format != "onnx":
        return
    outline = outline_onnx(path, found.bytes)
    check_readable(path, found.bytes)
    model = read_model(path)
    chance = chance_of(data)
    lint(model)
    require_sound(model)
    facts(model)
    _judged(model, chance)
    _lowered(model, chance)
    _rewritten(model, chance)
    if not model.functions:
        _in_order(_copy(model), [])
    onnx_specs(path, outline.inputs, (), ())


def _copy(model: ModelProto) -> ModelProto:
    copied = ModelProto()
    copied.CopyFrom(model)
    return copied


def _judged(model: ModelProto, chance: random.Random) -> None:
    for name in chance.sample(JUDGED, 2):
        judge_model(model, find_target(name), strict=chance.random() < 0.5)


def _lowered(model: ModelProto, chance: random.Random) -> None:
    before = model.SerializeToString(deterministic=True)
    opset = chance.choice(OPSETS)
    try:
        lowered = lower(model, opset)
    except LoweringRefused as refused:
        assert refused.refusals or refused.code != "CNV-4101"
    else:
        assert {entry.version for entry in lowered.opset_import if entry.domain in ("", "ai.onnx")} <= {opset, 0}
        lint(lowered)
        _judged(lowered, chance)
    assert model.SerializeToString(deterministic=True) == before


def _rewritten(model: ModelProto, chance: random.Random) -> None:
    for name in chance.sample(sorted(RULES), 8):
        changed = _copy(model)
        nodes = load_rule(name).run(changed, ARGUMENTS.get(name, ""))
        assert all(isinstance(node, str) for node in nodes)
        if nodes:
            lint(changed)


# ---------------------------------------------------------------------------------------------------------- mutations


def mutate(data: bytes, chance: random.Random) -> bytes:
    """Fields of the messages changed, by what the schema of ONNX says; now and then the bytes."""
    if chance.random() < 0.1:
        return mutate_bytes(data, chance)
    try:
        model = ModelProto.FromString(data)
        for _ in range(chance.randint(1, 3)):
            _mutate_message(model, chance)
        return bytes(model.SerializeToString())
    except (DecodeError, ValueError, RecursionError):
        return mutate_bytes(data, chance)


def _mutate_message(model: ModelProto, chance: random.Random) -> None:
    found = list(_messages(model))
    kind = chance.choice(sorted({message.DESCRIPTOR.name for message in found}))
    message = chance.choice([item for item in found if item.DESCRIPTOR.name == kind])
    field = chance.choice(message.DESCRIPTOR.fields)
    if chance.random() < 0.1:
        message.ClearField(field.name)
    elif field.is_repeated:
        _mutate_list(getattr(message, field.name), field, chance, found)
    elif field.message_type is not None:
        others = [item for item in found if item.DESCRIPTOR is field.message_type]
        if others:
            getattr(message, field.name).CopyFrom(_clone(chance.choice(others)))
    else:
        setattr(message, field.name, _scalar(field, getattr(message, field.name), chance, found))


def _mutate_list(items: Any, field: Any, chance: random.Random, found: list[Message]) -> None:
    action = chance.randrange(4)
    if action == 0 and items:
        del items[chance.randrange(len(items))]
    elif field.message_type is not None:
        others = [item for item in found if item.DESCRIPTOR is field.message_type]
        if action == 1 and len(items) > 1:
            one, two = chance.randrange(len(items)), chance.randrange(len(items))
            first, second = _clone(items[one]), _clone(items[two])
            items[one].CopyFrom(second)
            items[two].CopyFrom(first)
        elif others:
            items.add().CopyFrom(_clone(chance.choice(others)))
        else:
            items.add()
    elif action in (1, 2) and items:
        at = chance.randrange(len(items))
        items[at] = _scalar(field, items[at], chance, found)
    else:
        items.append(_scalar(field, items[0] if items else _zero(field), chance, found))


def _clone(message: Message) -> Message:
    copied = type(message)()
    copied.CopyFrom(message)
    return copied


def _zero(field: Any) -> Any:
    return {field.CPPTYPE_STRING: "" if field.type == field.TYPE_STRING else b""}.get(field.cpp_type, 0)


def _scalar(field: Any, now: Any, chance: random.Random, found: list[Message]) -> Any:
    if field.type == field.TYPE_STRING:
        return _name(now, chance, found)
    if field.type == field.TYPE_BYTES:
        return chance.choice((b"", b"\x00" * 8, b"\xff" * 4, b"linear", mutate_bytes(now, chance)))
    if field.enum_type is not None:
        return chance.choice([value.number for value in field.enum_type.values])
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return chance.choice((0.0, 1.0, -1.0, 1e30, float("nan"), float("inf")))
    low, high = (-(1 << 31), (1 << 31) - 1) if field.cpp_type == field.CPPTYPE_INT32 else (-(1 << 63), (1 << 63) - 1)
    number = chance.choice((*ODD_NUMBERS, now + 1, now - 1, -now))
    low = 0 if field.cpp_type in (field.CPPTYPE_UINT32, field.CPPTYPE_UINT64) else low
    return min(max(number, low), high)


def _name(now: str | bytes, chance: random.Random, found: list[Message]) -> str:
    texts = ["", "x", "", "ai.onnx", "com.microsoft", *WORDS]
    for message in chance.sample(found, min(12, len(found))):
        for field, value in message.ListFields():
            if field.type == field.TYPE_STRING:
                texts += list(value) if field.is_repeated else [value]
    text = chance.choice([*texts, now]) if chance.random() < 0.8 else mutate_text(_text(now), chance)
    return _text(text).replace("\ud800", "?")


def _text(name: str | bytes) -> str:
    """Protobuf gives bytes for a text that is no UTF-8."""
    return name if isinstance(name, str) else name.decode(errors="replace")


def _messages(message: Message) -> Iterator[Message]:
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None:
            for item in value if field.is_repeated else (value,):
                yield from _messages(item)


@cache
def _operators() -> tuple[str, ...]:
    import onnx.defs

    return tuple(sorted({schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain}))


WORDS = _operators()


def seeds() -> dict[str, bytes]:
    """Small graphs of many operators, with bodies, functions, odd weights and external data."""
    from graph_seeds import GRAPHS

    found = {name: onnx.parser.parse_model(text).SerializeToString() for name, text in GRAPHS.items()}
    sparse = onnx.parser.parse_model(GRAPHS["elementwise"])
    values = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [2], [1.0, 2.0])
    indices = onnx.helper.make_tensor("", onnx.TensorProto.INT64, [2], [0, 3])
    sparse.graph.sparse_initializer.append(onnx.helper.make_sparse_tensor(values, indices, [4]))
    found["sparse"] = sparse.SerializeToString()
    return found


def more_seeds() -> dict[str, bytes]:
    """The cases of the rewrites, and one of onnx's own for each operator."""
    from node_cases import all_cases
    from rewrite_cases import CASES, graph

    found = {f"rewrite-{case.name.replace(':', '-')}": graph(case.applies).SerializeToString() for case in CASES}
    for case in all_cases():
        data = case.model.SerializeToString()
        if len(data) < 4000:
            found.setdefault(f"node-{case.model.graph.node[-1].op_type}", data)
    return found


TARGET = Target(
    name="graphs",
    read=read,
    seeds=seeds,
    more_seeds=more_seeds,
    mutate=mutate,
    words=tuple(word.encode() for word in WORDS),
    limit=1 << 13,
)
