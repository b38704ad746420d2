"""Attributes that may be left out, written: some compilers don't work out the default."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

LEFT_OUT = {"Conv": "kernel_shape", "ConvTranspose": "kernel_shape", "Transpose": "perm"}


def _open(site: Site) -> bool:
    attribute = LEFT_OUT.get(site.node.op_type)
    return attribute is not None and site.attr(attribute) is None


def _written(site: Site) -> None:
    """The kernel's shape is the weights', without its channels; Transpose turns all dimensions round."""
    if site.node.op_type == "Transpose":
        site.same(perm=list(reversed(range(site.rank(site.inp(0))))))
    else:
        site.same(kernel_shape=list(site.fixed(site.inp(1))[2:]))


def run(model: ModelProto, argument: str) -> list[str]:
    """Write the attribute into every node that leaves it out; says which."""
    return each_node(model, _written, _open)


RULE = Rewrite(
    name="write-defaults",
    title="kernel_shape and perm written out",
    avoids=tuple(Avoided(op=op, attribute=name, fact="left-out") for op, name in LEFT_OUT.items()),
    run=run,
)
