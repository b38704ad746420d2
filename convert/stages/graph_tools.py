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
from convert.rewrites import Applied, RewriteResult, Undone, rewrite
from convert.rewrites.base import NMS_SPLIT
from convert.rewrites.nms_split import joined, split_suppression
from convert.rewrites.prove import prove


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
    host: str = ""
    """``nms-split``: the file with the second graph, which runs on the host."""
    cut: tuple[str, ...] = ()
    """The outputs of the first graph that the second takes in."""


def lower_file(path: str, opset: int, out: str) -> GraphChange:
    """Bring an ONNX file to another opset. Raises LoweringRefused (CNV-4101) with every node that has no equivalent."""
    model = _read(path)
    require_sound(model)
    return _written(path, out, model, lower(model, opset))


def rewrite_file(path: str, names: tuple[str, ...], out: str) -> GraphChange:
    """Apply rewrites by name, each proven with ONNX Runtime; ``nms-split`` comes last and writes a second file.

    Raises ExportError CNV-4111 for an unknown name, CNV-4113 where there is no NonMaxSuppression to cut in front of.
    """
    model = _read(path)
    require_sound(model)
    result = rewrite(model, [name for name in names if name != NMS_SPLIT[0]], folder=str(Path(path).parent))
    if NMS_SPLIT[0] in names:
        return _split(path, out, model, result)
    return _written(path, out, model, result.model, applied=result.applied, undone=result.undone)


def _split(path: str, out: str, before: ModelProto, result: RewriteResult) -> GraphChange:
    """Cut a graph in two, and prove that the halves one after the other give what it gives."""
    halves = split_suppression(result.model)
    evidence, problem = prove(result.model, joined(result.model, halves), [], str(Path(path).parent))
    nodes = tuple(node.name or node.output[0] for node in halves.post.graph.node)
    if problem:
        undone = (*result.undone, Undone(name=NMS_SPLIT[0], nodes=nodes, reason=problem))
        return _written(path, out, before, result.model, applied=result.applied, undone=undone)
    host = Path(out).with_suffix(".host.onnx")
    _write(path, host, halves.post)
    applied = (*result.applied, Applied(name=NMS_SPLIT[0], nodes=nodes, evidence=evidence))
    change = _written(path, out, before, halves.main, applied=applied, undone=result.undone)
    return msgspec.structs.replace(change, host=str(host), cut=halves.cut)


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
    _write(path, Path(out), after)
    return GraphChange(
        model=path,
        out=out,
        opset_before=opset_of(before),
        opset=opset_of(after),
        nodes_before=sum(op_counts(before).values()),
        nodes=sum(op_counts(after).values()),
        applied=applied,
        undone=undone,
    )


def _write(path: str, target: Path, model: ModelProto) -> None:
    """Write a model beside its weights; a file of weights of the user's own is copied, never linked."""
    partial = target.with_name(f".{target.name}.partial")
    place_weights(model, Path(path).resolve().parent, target.with_name(f"{target.name}.data"), link=False)
    try:
        partial.write_bytes(model.SerializeToString())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
