"""The tools behind ``convert graph``: one ONNX file in, one out, in the worker."""

from __future__ import annotations

from pathlib import Path

import msgspec
from onnx import ModelProto

from convert.bigmodel import place_weights
from convert.errors import UsageError
from convert.graphs import op_counts, opset_of, read_model
from convert.loading.onnx_files import outline_onnx
from convert.loading.sniff import identify
from convert.lowering import Finding, lint, lower
from convert.lowering.sound import require_sound
from convert.rewrites import Applied, Undone, rewrite


class GraphChange(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool made of a graph."""

    model: str
    out: str
    opset_before: int
    opset: int
    nodes_before: int
    nodes: int
    applied: tuple[Applied, ...] = ()
    undone: tuple[Undone, ...] = ()


def lower_file(path: str, opset: int, out: str) -> GraphChange:
    """Bring an ONNX file to another opset. Raises LoweringRefused (CNV-4101) with every node that has no equivalent."""
    model = _read(path)
    require_sound(model)
    return _written(path, out, model, lower(model, opset))


def rewrite_file(path: str, names: tuple[str, ...], out: str) -> GraphChange:
    """Apply rewrites by name, each proven with ONNX Runtime. Raises ExportError CNV-4111 for an unknown name."""
    model = _read(path)
    require_sound(model)
    result = rewrite(model, names, folder=str(Path(path).parent))
    return _written(path, out, model, result.model, applied=result.applied, undone=result.undone)


def lint_file(path: str) -> tuple[Finding, ...]:
    """Everything that is wrong with an ONNX file, in one go."""
    return lint(_read(path))


def _read(path: str) -> ModelProto:
    found = identify(Path(path))
    if found.format != "onnx":
        raise UsageError(
            "CNV-2009",
            f"{Path(path).name} is {found.format}, and this tool takes ONNX files",
            hint="convert it first (`convert MODEL --target cpu`), or give the .onnx of an earlier conversion",
        )
    outline_onnx(Path(found.path), found.bytes)
    return read_model(Path(found.path))


def _written(
    path: str,
    out: str,
    before: ModelProto,
    after: ModelProto,
    *,
    applied: tuple[Applied, ...] = (),
    undone: tuple[Undone, ...] = (),
) -> GraphChange:
    """Write the new model beside its weights; a file of weights of the user's own is copied, never linked."""
    target = Path(out)
    partial = target.with_name(f".{target.name}.partial")
    place_weights(after, Path(path).resolve().parent, target.with_name(f"{target.name}.data"), link=False)
    try:
        partial.write_bytes(after.SerializeToString())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
    return GraphChange(
        model=path,
        out=str(target),
        opset_before=opset_of(before),
        opset=opset_of(after),
        nodes_before=sum(op_counts(before).values()),
        nodes=sum(op_counts(after).values()),
        applied=applied,
        undone=undone,
    )
