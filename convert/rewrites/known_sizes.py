"""``Shape`` and ``Size`` of what has a fixed shape as constants, and any ``Size`` as the product of ``Shape``."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto

from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import drop_idle, each_node

OPS = ("Shape", "Size")


def _asked(site: Site) -> bool:
    known = site.scope.shape(site.inp(0))
    fixed = known is not None and all(dim is not None for dim in known)
    return site.node.op_type in OPS and (fixed or site.node.op_type == "Size")


def _answered(site: Site) -> None:
    known = site.scope.shape(site.inp(0))
    if known is None or any(dim is None for dim in known):
        site.end_as(site.reduce("ReduceProd", site.op("Shape", site.inp(0)), [0], keepdims=0))
        return
    dims = np.array(known, dtype=np.int64)
    if site.node.op_type == "Size":
        site.end_as(site.long(int(dims.prod())))
    else:
        site.end_as(site.tensor(dims[site.attr("start", 0) : site.attr("end")]))


def run(model: ModelProto, argument: str) -> list[str]:
    """Answer every question for a size that is known; says which."""
    done = each_node(model, _answered, _asked)
    if done:
        drop_idle(model, *OPS)
    return done


RULE = Rewrite(
    name="known-sizes",
    title="sizes that are known as constants",
    avoids=tuple(Avoided(op=op, fact="known-size") for op in OPS),
    run=run,
)
