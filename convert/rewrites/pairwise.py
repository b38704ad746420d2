"""``Max``, ``Min`` and ``Sum`` of any number of inputs as a chain of two at a time."""

from __future__ import annotations

from functools import reduce

from onnx import ModelProto

from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

OPS = {"Max": "Max", "Min": "Min", "Sum": "Add"}


def _many(site: Site) -> bool:
    return site.node.op_type in OPS and len(site.node.input) != 2


def _chained(site: Site) -> None:
    op = OPS[site.node.op_type]
    site.end_as(reduce(lambda one, other: site.op(op, one, other), site.node.input))


def run(model: ModelProto, argument: str) -> list[str]:
    """Chain every node with more or fewer than two inputs; says which."""
    return each_node(model, _chained, _many)


RULE = Rewrite(
    name="pairwise",
    title="Max, Min and Sum of two inputs at a time",
    avoids=tuple(Avoided(op=op, fact="not-two-inputs") for op in OPS),
    run=run,
)
