"""Random operators: Bernoulli by a uniform draw, bfloat16 by float."""

from __future__ import annotations

from onnx import TensorProto

from convert.lowering.site import Site
from convert.lowering.table import down

T = TensorProto


@down("Bernoulli", version=15)
def bernoulli_by_uniform(site: Site) -> None:
    """A uniform draw below the chance."""
    chance = site.inp(0)
    kind = site.dtype(chance)
    drawn = site.op("RandomUniformLike", chance, dtype=kind, seed=site.attr("seed"))
    site.end("Cast", site.op("Less", drawn, chance), to=site.attr("dtype", kind))


@down("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", version=22)
def draw_in_float(site: Site) -> None:
    """bfloat16 is drawn in float and rounded."""
    like = site.node.op_type.endswith("Like")
    wanted = site.attr("dtype", site.dtype(site.inp(0)) if like else T.FLOAT)
    if wanted != T.BFLOAT16 and not (like and site.dtype(site.inp(0)) == T.BFLOAT16):
        site.same()
        return
    inputs = [site.cast(site.inp(0), T.FLOAT)] if like and site.dtype(site.inp(0)) == T.BFLOAT16 else None
    written = site.same(inputs, dtype=T.FLOAT)
    written.output[0] = site.names.fresh(f"{site.stem}/drawn")
    site.end("Cast", written.output[0], to=wanted)
