"""Convolution and pooling along one dimension as along two, of which one has size one."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.site import Refuse, Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

OPS = ("AveragePool", "Conv", "ConvTranspose", "LpPool", "MaxPool")
SINGLES = {"kernel_shape": 1, "strides": 1, "dilations": 1, "output_padding": 0}


def _flat(site: Site) -> bool:
    return site.node.op_type in OPS and len(site.scope.shape(site.inp(0)) or ()) == 3


def _lifted(site: Site) -> None:
    """A dimension of one is put in before the last, with a window of one along it."""
    if site.wants(1) or site.attr("output_shape"):
        raise Refuse("indices and output_shape are not lifted")
    changed = {name: [one, *site.attr(name)] for name, one in SINGLES.items() if site.attr(name)}
    if (pads := site.attr("pads")) is not None:
        changed["pads"] = [0, pads[0], 0, pads[1]]
    inputs = [site.unsqueeze(site.inp(0), 2)]
    if site.node.op_type in ("Conv", "ConvTranspose"):
        inputs += [_lifted_weight(site), *site.node.input[2:]]
    node = site.same(inputs, **changed)
    node.output[0] = site.names.fresh(f"{site.stem}/lifted")
    site.end_as(site.squeeze(node.output[0], 2))


def _lifted_weight(site: Site) -> str:
    known = site.const(site.inp(1))
    return site.unsqueeze(site.inp(1), 2) if known is None else site.tensor(known[:, :, None, :])


def run(model: ModelProto, argument: str) -> list[str]:
    """Lift every node that works along one dimension; says which."""
    return each_node(model, _lifted, _flat)


RULE = Rewrite(
    name="lift-1d",
    title="one-dimensional convolution and pooling in two dimensions",
    avoids=tuple(Avoided(op=op, fact="one-dimension") for op in OPS),
    run=run,
)
