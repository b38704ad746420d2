"""Axes, pads, sizes and the like that nodes work out from constants and known sizes, as the constants that they are.

Exporters write such arithmetic around pads and shapes, and a simplifier leaves it alone inside the bodies of If.
"""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import drop_idle, each_node

REDUCTIONS = ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
PARAMETERS: dict[str, tuple[int, ...]] = {
    "Clip": (1, 2),
    "ConstantOfShape": (0,),
    "CumSum": (1,),
    "Expand": (1,),
    "OneHot": (1,),
    "Pad": (1, 2, 3),
    "Range": (0, 1, 2),
    "Reshape": (1,),
    "Resize": (1, 2, 3),
    "Slice": (1, 2, 3, 4),
    "Split": (1,),
    "Squeeze": (1,),
    "Tile": (1,),
    "TopK": (1,),
    "Unsqueeze": (1,),
    **{f"Reduce{name}": (1,) for name in REDUCTIONS},
}
"""Inputs of operators that compilers want to know ahead."""
ARITHMETIC = (
    "Add", "Cast", "Concat", "ConstantOfShape", "Div", "Gather", "Mod", "Mul", "Neg", "Range", "Reshape", "Shape",
    "Size", "Slice", "Squeeze", "Sub", "Transpose", "Unsqueeze",
)  # fmt: skip
"""What such an input is made by; it goes where nothing reads it any more."""


def _computed(site: Site) -> list[int]:
    """The places of inputs that are known and not written down."""
    places = PARAMETERS.get(site.node.op_type, ())
    return [
        p for p in places if site.has(p) and not _written(site, site.inp(p)) and site.const(site.inp(p)) is not None
    ]


def _written(site: Site, name: str) -> bool:
    scope = site.scope.defines(name)
    if scope is None or name in scope.tensors:
        return True
    maker = scope.makers.get(name)
    return maker is None or maker.op_type == "Constant"


def _fixed(site: Site) -> None:
    inputs = list(site.node.input)
    for place in _computed(site):
        value = site.const(inputs[place])
        assert value is not None
        inputs[place] = site.tensor(value)
    site.same(inputs)


def run(model: ModelProto, argument: str) -> list[str]:
    """Write down every such input that can be known; says of which nodes."""
    done = each_node(model, _fixed, lambda site: bool(_computed(site)))
    if done:
        drop_idle(model, *ARITHMETIC)
    return done


RULE = Rewrite(
    name="computed-constants",
    title="pads, axes and sizes that can be known as constants",
    avoids=(
        *(Avoided(op=op, fact="computed-parameter") for op in PARAMETERS),
        *(Avoided(op=op, fact="only-for-parameters") for op in ("Shape", "Size")),
    ),
    run=run,
)
