"""Symbolic dimensions as fixed ones: ``fix-dims:N=1,H=224``. Static compilers take no others."""

from __future__ import annotations

from onnx import GraphProto, ModelProto

from convert.errors import ExportError
from convert.rewrites.base import Avoided, Rewrite
from convert.walking import subgraphs


def run(model: ModelProto, argument: str) -> list[str]:
    """Give the named dimensions their sizes; says which inputs changed. Derived sizes in the graph are forgotten."""
    sizes = parse(argument)
    changed = []
    for info in model.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
                changed.append(info.name)
    if changed:
        _fix(model.graph, sizes)
    return list(dict.fromkeys(changed))


def parse(argument: str) -> dict[str, int]:
    """``N=1,H=224`` as sizes by name. Raises CNV-4112 where it has another form."""
    sizes = {}
    for part in filter(None, argument.split(",")):
        name, _, size = part.partition("=")
        if not name.strip() or not size.strip().isdecimal() or int(size) < 1:
            raise ExportError(
                "CNV-4112",
                f"the rewrite fix-dims can't read '{part}': it must be a dimension's name, '=' and a size from 1 on",
                hint="write for instance fix-dims:N=1,H=224",
            )
        sizes[name.strip()] = int(size)
    return sizes


def _fix(graph: GraphProto, sizes: dict[str, int]) -> None:
    del graph.value_info[:]
    for info in graph.output:
        for dim in info.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]
            elif dim.dim_param:
                dim.Clear()
    for node in graph.node:
        for inner in subgraphs(node):
            _fix(inner, sizes)


RULE = Rewrite(
    name="fix-dims",
    title="symbolic dimensions with a fixed size",
    avoids=(Avoided(op="*", fact="symbolic-dims"),),
    run=run,
    opt_in=True,
)
