"""``Reshape`` with ``allowzero``, which compilers pass over: left out where no size is zero and nothing differs."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def _allows_zero(site: Site) -> bool:
    return site.node.op_type == "Reshape" and bool(site.attr("allowzero", 0))


def _plain(site: Site) -> None:
    sizes = site.const(site.inp(1))
    if sizes is None:
        raise Refuse("the sizes are computed, and one may be zero")
    if (sizes == 0).any():
        raise Refuse("a size is zero")
    site.same(drop=["allowzero"])


def run(model: ModelProto, argument: str) -> list[str]:
    """Leave the attribute out of every Reshape whose sizes are known and not zero; says which."""
    return each_node(model, _plain, _allows_zero)


RULE = Rewrite(
    name="reshape-allowzero",
    title="Reshape without allowzero, where no size is zero",
    avoids=(Avoided(op="Reshape", attribute="allowzero", values=(1,)),),
    run=run,
)
