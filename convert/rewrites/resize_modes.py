"""``pytorch_half_pixel``, ``half_pixel_symmetric`` and nearest neighbours as ``half_pixel`` where they mean the same.

PyTorch writes enlarging by whole numbers as ``asymmetric`` with ``floor``, a rounding that CANN does not read.
"""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

MODES = ("pytorch_half_pixel", "half_pixel_symmetric")


def _wanted(site: Site) -> bool:
    if site.node.op_type != "Resize":
        return False
    return site.attr("coordinate_transformation_mode") in MODES or _asymmetric(site)


def _asymmetric(site: Site) -> bool:
    """Nearest neighbours, each the one below its place in the input."""
    mode, rounding = site.attr("mode", "nearest"), site.attr("nearest_mode", "round_prefer_floor")
    place = site.attr("coordinate_transformation_mode", "half_pixel")
    return (mode, rounding, place) == ("nearest", "floor", "asymmetric")


def _as_half_pixel(site: Site) -> None:
    """``pytorch_half_pixel`` differs for outputs of size one, ``half_pixel_symmetric`` for sizes that are not whole.

    By a whole factor every element is repeated, whichever way places are counted.
    """
    if _asymmetric(site):
        sizes = zip(site.fixed(site.inp(0)), site.fixed(site.node.output[0]), strict=True)
        if site.attr("axes") or any(not before or after % before for before, after in sizes):
            raise Refuse("it does not enlarge by whole numbers")
        site.same(drop=["nearest_mode"], coordinate_transformation_mode="half_pixel")
        return
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
    avoids=(
        Avoided(op="Resize", attribute="coordinate_transformation_mode", values=MODES),
        Avoided(op="Resize", attribute="nearest_mode", values=("floor",)),
    ),
    run=run,
)
