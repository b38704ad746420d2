"""``TopK`` that leaves the order of its results open, with the sorted order: one of those that it allows."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def _open(site: Site) -> bool:
    return site.node.op_type == "TopK" and not site.attr("sorted", 1)


def _sorted(site: Site) -> None:
    site.same(drop=["sorted"])


def run(model: ModelProto, argument: str) -> list[str]:
    """Let every TopK sort; says which."""
    return each_node(model, _sorted, _open)


RULE = Rewrite(
    name="topk-sorted",
    title="TopK with its results in order",
    avoids=(Avoided(op="TopK", attribute="sorted", values=(0,)),),
    run=run,
)
