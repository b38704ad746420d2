"""Cast, CastLike and BitCast."""

from __future__ import annotations

from onnx import TensorProto

from convert.lowering.narrow import elem_name
from convert.lowering.site import Refuse, Site
from convert.lowering.table import down

T = TensorProto
SAME_WIDTH = ({T.INT8, T.UINT8}, {T.INT16, T.UINT16}, {T.INT32, T.UINT32}, {T.INT64, T.UINT64})


@down("Cast", "CastLike", version=24)
def rounding_of_scales(site: Site) -> None:
    """``round_mode`` speaks of float8e8m0 only, which no older version has."""
    site.same(drop=["round_mode"])


@down("Cast", "CastLike", version=19)
def saturation_of_float8(site: Site) -> None:
    """``saturate`` speaks of float8 only, which no older version has."""
    site.same(drop=["saturate"])


@down("CastLike", version=15)
def cast_like_by_type(site: Site) -> None:
    """Cast to the type that the second input is known to have."""
    site.end("Cast", site.inp(0), to=site.dtype(site.inp(1)))


@down("BitCast", version=26)
def bits_of_integers(site: Site) -> None:
    """Between integers of one width Cast keeps the bits; between integers and floats nothing does."""
    source, target = site.dtype(site.inp(0)), site.attr("to")
    if source == target:
        site.end("Identity", site.inp(0))
    elif (
        {source, target} in SAME_WIDTH or (source, target) == (T.BOOL, T.UINT8) or (source, target) == (T.BOOL, T.INT8)
    ):
        site.end("Cast", site.inp(0), to=target)
    else:
        raise Refuse(f"no operator reads the bits of {elem_name(source)} as {elem_name(target)}")
