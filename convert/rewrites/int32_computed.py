"""Computed int64 indices as int32, where their range is proven: accelerators lack int64 or run it slowly.

Two things prove it. An operator takes no index beyond its axis, so where the axis has a known size below 2^31, no valid
index needs more than int32. And where the axis is open, the range of the computed index itself may be known.
"""

from __future__ import annotations

from onnx import ModelProto, TensorProto

from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.int32_indices import INDEX_INPUT
from convert.rewrites.nodes import drop_idle, each_node
from convert.rewrites.ranges import INT32, Ranges, fits_int32


def _wanted(site: Site) -> bool:
    place = INDEX_INPUT.get(site.node.op_type)
    if place is None:
        return False
    name = site.inp(place)
    return site.scope.dtype(name) == TensorProto.INT64 and site.const(name) is None


def _axis_is_short(site: Site) -> bool:
    shape = site.scope.shape(site.inp(0))
    axis = site.attr("axis", 0)
    if shape is None or not -len(shape) <= axis < len(shape):
        return False
    size = shape[axis]
    return size is not None and size <= INT32[1]


def _narrowed(site: Site, name: str) -> str:
    """The index as int32: what a Cast to int64 was made of, else a Cast of its own."""
    owner = site.scope.defines(name)
    maker = owner.makers.get(name) if owner is not None else None
    if maker is not None and maker.op_type == "Cast" and site.scope.dtype(maker.input[0]) == TensorProto.INT32:
        return str(maker.input[0])
    return site.cast(name, TensorProto.INT32)


def run(model: ModelProto, argument: str) -> list[str]:
    """Narrow every computed index whose range is proven; says where."""
    ranges = Ranges()

    def as_int32(site: Site) -> None:
        place = INDEX_INPUT[site.node.op_type]
        name = site.inp(place)
        if not _axis_is_short(site) and not fits_int32(ranges.span(name, site.scope)):
            raise Refuse("nothing proves that every index fits into int32")
        inputs = list(site.node.input)
        inputs[place] = _narrowed(site, name)
        site.same(inputs)

    done = each_node(model, as_int32, _wanted)
    if done:
        drop_idle(model, "Cast")
    return done


RULE = Rewrite(
    name="computed-indices-to-int32",
    title="computed indices as int32, where their range is proven",
    avoids=tuple(Avoided(op=op, fact="int64-input") for op in INDEX_INPUT),
    run=run,
)
