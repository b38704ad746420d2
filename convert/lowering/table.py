"""The table of rules: which function takes an operator over one step of versions, down or up.

A rule for ``("Softmax", 13)`` down takes Softmax of version 13 to what opset 12 can say; up it takes Softmax of the
version before 13 to version 13. ``SAME`` names the steps where only types, documentation or attributes with a
neutral default changed, so that the node stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module

from convert.lowering.site import Site

Rule = Callable[[Site], None]
Step = tuple[str, int]

MODULES = (
    "activations",
    "attention",
    "axes",
    "bits",
    "casts",
    "contraction",
    "deformable",
    "elementwise",
    "normalization",
    "padding",
    "pooling",
    "quantization",
    "random",
    "recurrent",
    "reduction",
    "resize",
    "scan",
    "scatter",
    "sequences",
    "shape",
    "signal",
    "vision",
)
"""The files of ``convert/lowering/rules/``."""

DOWN: dict[Step, Rule] = {}
UP: dict[Step, Rule] = {}
PREFERRED: dict[Step, Callable[[Site], bool]] = {}
"""Of operators that ONNX itself defines by a function body: where the rule is taken, and not that body."""


def down(*ops: str, version: int) -> Callable[[Rule], Rule]:
    """Register a rule for the step from ``version`` to the version before."""

    def add(rule: Rule) -> Rule:
        DOWN.update({(op, version): rule for op in ops})
        return rule

    return add


def up(*ops: str, version: int) -> Callable[[Rule], Rule]:
    """Register a rule for the step from the version before to ``version``."""

    def add(rule: Rule) -> Rule:
        UP.update({(op, version): rule for op in ops})
        return rule

    return add


@cache
def load() -> None:
    """Import every file of rules, once."""
    for module in MODULES:
        import_module(f"convert.lowering.rules.{module}")


SAME: dict[str, tuple[int, ...]] = {
    "Abs": (13,),
    "Acos": (22,),
    "Acosh": (22,),
    "Add": (13, 14),
    "ArgMax": (11, 12, 13),
    "ArgMin": (11, 12, 13),
    "Asin": (22,),
    "Asinh": (22,),
    "Atan": (22,),
    "Atanh": (22,),
    "Attention": (24, 25),
    "AveragePool": (10, 11, 19, 22),
    "BatchNormalization": (15,),
    "Bernoulli": (22,),
    "BitShift": (28,),
    "Cast": (9, 13, 19, 21, 23, 24, 25, 28),
    "CastLike": (19, 21, 23, 24, 25),
    "Ceil": (13,),
    "Celu": (28,),
    "Clip": (12, 13),
    "Compress": (11, 28),
    "Concat": (11, 13),
    "Constant": (9, 11, 12, 13, 19, 21, 23, 24, 25),
    "ConstantOfShape": (20, 21, 23, 24, 25),
    "Conv": (11, 22),
    "ConvTranspose": (11, 22),
    "Cos": (22,),
    "Cosh": (22,),
    "CumSum": (14,),
    "DeformConv": (22,),
    "DepthToSpace": (11, 13, 28),
    "DequantizeLinear": (13, 19, 21, 23, 24, 25, 28),
    "Det": (22,),
    "Div": (13, 14),
    "Dropout": (10, 13, 22),
    "Einsum": (28,),
    "Elu": (22,),
    "Equal": (11, 13, 19),
    "Erf": (13,),
    "Exp": (13,),
    "Expand": (13,),
    "EyeLike": (22,),
    "Flatten": (9, 11, 13, 21, 23, 24, 25),
    "Floor": (13,),
    "GRU": (14, 22),
    "Gather": (11, 13),
    "GatherElements": (13,),
    "GatherND": (12, 13),
    "Gemm": (9, 11, 13),
    "GlobalAveragePool": (22,),
    "GlobalLpPool": (22,),
    "GlobalMaxPool": (22,),
    "Greater": (9, 13),
    "GreaterOrEqual": (16,),
    "GridSample": (22,),
    "HardSigmoid": (22,),
    "HardSwish": (22,),
    "Hardmax": (11,),
    "Identity": (13, 14, 16, 19, 21, 23, 24, 25),
    "If": (11, 13, 16, 19, 21, 23, 24, 25),
    "InstanceNormalization": (22,),
    "IsInf": (20,),
    "IsNaN": (13, 20),
    "LRN": (13,),
    "LSTM": (14, 22),
    "LeakyRelu": (16,),
    "Less": (9, 13),
    "LessOrEqual": (16,),
    "Log": (13,),
    "LogSoftmax": (11,),
    "Loop": (11, 13, 16, 19, 21, 23, 24, 25),
    "LpNormalization": (22,),
    "LpPool": (11, 18, 22),
    "MatMul": (9, 13),
    "Max": (8, 12, 13),
    "MaxPool": (8, 10, 11, 12, 22),
    "MaxRoiPool": (22,),
    "MaxUnpool": (11, 22),
    "Mean": (8, 13),
    "MeanVarianceNormalization": (13,),
    "Min": (8, 12, 13),
    "Mish": (22,),
    "Mod": (13, 28),
    "Mul": (13, 14),
    "Multinomial": (22,),
    "Neg": (13,),
    "NegativeLogLikelihoodLoss": (13, 22),
    "NonMaxSuppression": (11,),
    "NonZero": (13,),
    "OneHot": (11, 28),
    "Optional": (28,),
    "OptionalGetElement": (18, 28),
    "OptionalHasElement": (18, 28),
    "PRelu": (9, 16),
    "Pad": (13, 18, 19, 21, 23, 24, 25),
    "Pow": (12, 13, 15),
    "QLinearMatMul": (21,),
    "QuantizeLinear": (13, 19, 21, 23, 24, 25, 28),
    "RNN": (14, 22),
    "RandomNormal": (22,),
    "RandomNormalLike": (22,),
    "RandomUniform": (22,),
    "RandomUniformLike": (22,),
    "Range": (27,),
    "Reciprocal": (13,),
    "ReduceL1": (11, 13),
    "ReduceL2": (11, 13),
    "ReduceLogSum": (11, 13, 28),
    "ReduceLogSumExp": (11, 13, 28),
    "ReduceMax": (11, 12, 13, 20),
    "ReduceMean": (11, 13),
    "ReduceMin": (11, 12, 13, 20),
    "ReduceProd": (11, 13),
    "ReduceSum": (11,),
    "ReduceSumSquare": (11, 13),
    "Relu": (13, 14),
    "Reshape": (13, 14, 19, 21, 23, 24, 25),
    "Resize": (13, 18, 19),
    "ReverseSequence": (28,),
    "RoiAlign": (22,),
    "Round": (22,),
    "Scan": (11, 16, 19, 21, 23, 24, 25),
    "ScatterElements": (13, 16, 18),
    "ScatterND": (13, 16, 18),
    "Selu": (22,),
    "Shape": (13, 15, 19, 21, 23, 24, 25),
    "Sigmoid": (13,),
    "Sign": (13,),
    "Sin": (22,),
    "Sinh": (22,),
    "Size": (13, 19, 21, 23, 24, 25),
    "Slice": (11, 13),
    "Softmax": (11,),
    "SoftmaxCrossEntropyLoss": (13,),
    "Softplus": (22,),
    "Softsign": (22,),
    "SpaceToDepth": (13, 28),
    "Split": (11,),
    "SplitToSequence": (24,),
    "Sqrt": (13,),
    "Squeeze": (11, 21, 23, 24, 25),
    "Sub": (13, 14),
    "Sum": (8, 13),
    "Tan": (22,),
    "Tanh": (13,),
    "ThresholdedRelu": (22,),
    "Tile": (13,),
    "TopK": (11, 24),
    "Transpose": (13, 21, 23, 24, 25),
    "Unique": (28,),
    "Unsqueeze": (11, 21, 23, 24, 25),
    "Where": (16,),
}
"""Steps (by the newer version) where a node keeps its meaning as it stands. On the way down an attribute or input that
came with the step is dropped where it has its neutral default, and refused otherwise unless a rule handles it."""
