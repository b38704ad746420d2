"""``pytorch_half_pixel`` and ``half_pixel_symmetric`` as ``half_pixel`` where they mean the same."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

MODES = ("pytorch_half_pixel", "half_pixel_symmetric")


def _wanted(site: Site) -> bool:
    return site.node.op_type == "Resize" and site.attr("coordinate_transformation_mode") in MODES


def _as_half_pixel(site: Site) -> None:
    """``pytorch_half_pixel`` differs for outputs of size one, ``half_pixel_symmetric`` for sizes that are not whole."""
    output = site.dims(site.node.output[0])
    if site.attr("coordinate_transformation_mode") == "pytorch_half_pixel":
        dims = site.dims(site.inp(0))
        unchanged = [a == b and a is not None for a, b in zip(output, dims, strict=True)]
        alone = any(size in (None, 1) and not same for size, same in zip(output, unchanged, strict=True))
        if alone:
            raise Refuse("an output of size one is sampled at another place")
    elif not site.has(3):
        scales, dims = site.const(site.inp(2)), site.dims(site.inp(0))
        if scales is None or len(scales) != len(dims):
            raise Refuse("the scales are not known")
        for scale, size in zip(scales, dims, strict=True):
            if scale != 1 and (size is None or not float(scale * size).is_integer()):
                raise Refuse("the scaled size is not whole")
    site.same(coordinate_transformation_mode="half_pixel")


def run(model: ModelProto, argument: str) -> list[str]:
    """Rename the mode where nothing changes; says where."""
    return each_node(model, _as_half_pixel, _wanted)


RULE = Rewrite(
    name="resize-half-pixel",
    title="Resize modes that are half_pixel by another name",
    avoids=(Avoided(op="Resize", attribute="coordinate_transformation_mode", values=MODES),),
    run=run,
)
