"""What a precision does to a node: for each of its type parameters, the type stored and the type computed in.

fp16   float32 is stored and computed in float16 wherever ONNX's schema takes it
bf16   float32 is stored in bfloat16 wherever the schema takes it, and computed in float32 where no CPU kernel does
widen  bfloat16 and float64 stay as they are, and are computed in float32 where no CPU kernel takes them

The forecast's two, ``as_fp16`` and ``as_bf16``: float32 is stored in the narrow type and every sum and product is
computed in float32, whatever kernels ONNX Runtime has, so that rounding happens where values are stored and nowhere
else. Nodes that only move values take them as they are stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from onnx import AttributeProto, NodeProto
from onnx.defs import OpSchema

from convert.precision.kernels import has_kernel

F32, F16, BF16, F64 = "tensor(float)", "tensor(float16)", "tensor(bfloat16)", "tensor(double)"

UNTOUCHED = frozenset(
    {
        # Their output takes the type of their input, or of an attribute, and few kernels exist.
        *(
            "EyeLike",
            "RandomNormal",
            "RandomUniform",
            "RandomNormalLike",
            "RandomUniformLike",
            "Bernoulli",
            "Multinomial",
        ),
        # What it gives is the bits of its input; what its expansion adds is float32.
        *("BitCast", "MeanVarianceNormalization"),
        # Quantized graphs bring their own precision; a cast between would hide the pattern that kernels look for.
        *("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear"),
    }
)
MOVES = frozenset(
    {
        *("Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND", "Identity"),
        *("Reshape", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze"),
    }
)
"""Operators that move values and compute none: their outputs hold nothing that has to be rounded again."""
SELECTS = frozenset(
    {
        *("Relu", "Neg", "Abs", "Sign", "Max", "Min", "Clip", "Where", "Ceil", "Floor", "Round", "Dropout", "Pad"),
        *("MaxPool", "GlobalMaxPool", "ReduceMax", "ReduceMin", "Trilu", "TopK", "Split"),
    }
)
"""Operators that give elements of their inputs, their negatives or whole numbers next to them: of rounded numbers,
rounded numbers, which need not be rounded again."""
TYPED_BY_ATTRIBUTE = frozenset({"Cast", "ConstantOfShape"})
"""Operators whose output type an attribute says; the attribute is changed along."""


@dataclass(frozen=True, slots=True)
class Choice:
    """The type in which values are stored between nodes, and the one that a node computes in."""

    storage: str
    compute: str


Choices = dict[str, Choice]
"""By type parameter of the schema; one that is absent stays as it is."""


@dataclass(frozen=True, slots=True)
class Policy:
    """One precision. ``source`` values become ``storage``; ``widen`` keeps storage and changes only the computing."""

    sources: tuple[str, ...]
    storage: str = ""
    emulate: bool = False
    """Compute in float32 where no kernel takes the storage type; otherwise ONNX Runtime does that on its own."""
    wide: bool = False
    """Compute in float32 whatever kernels there are, but for nodes that only move values."""

    def choose(self, node: NodeProto, schema: OpSchema, bound: Mapping[str, str]) -> Choices:
        """The choice for each type parameter that changes. ``bound``: the known types of the parameters."""
        if schema.domain or node.op_type in UNTOUCHED or _holds_sequences(schema):
            return {}
        allowed = {c.type_param_str: c.allowed_type_strs for c in schema.type_constraints}
        given = {formal.type_str for formal in schema.outputs} if self.emulate else set()
        switched = {name: self.storage or kind for name, kind in bound.items() if kind in self.sources}
        # Where casts stand around a node anyway, its schema need not know the type: Conv does since opset 22 only.
        switched = {name: kind for name, kind in switched.items() if kind in allowed.get(name, ()) or name in given}
        if node.op_type not in TYPED_BY_ATTRIBUTE:
            fed = {formal.type_str for formal in schema.inputs}
            switched = {name: kind for name, kind in switched.items() if name in fed}
        if not switched:
            return {}
        admitted = all(kind in allowed.get(name, ()) for name, kind in switched.items())
        native = admitted and not _reduces(node) and has_kernel(schema, {**bound, **switched})
        native = native and not (self.wide and (node.op_type not in MOVES or node.op_type in SELECTS))
        plain = has_kernel(schema, {**bound, **dict.fromkeys(switched, F32)})
        if self.emulate:
            return self._emulated(switched, native, plain)
        if _reduces(node) or not (native or plain):
            return {}
        return {name: Choice(kind, kind) for name, kind in switched.items()}

    def _emulated(self, switched: Mapping[str, str], native: bool, plain: bool) -> Choices:
        if native:
            return {name: Choice(kind, kind) for name, kind in switched.items()} if self.storage else {}
        if self.storage or plain:
            return {name: Choice(kind, F32) for name, kind in switched.items()}
        return {}


def selects(node: NodeProto) -> bool:
    """Whether a node's outputs are rounded numbers where its inputs are; numbers in attributes are not."""
    return node.op_type in SELECTS and not any(a.type == AttributeProto.FLOAT for a in node.attribute)


def _reduces(node: NodeProto) -> bool:
    """Whether a scatter combines elements, which ONNX Runtime's kernels of 16-bit types refuse at run time."""
    return any(a.name == "reduction" and a.s != b"none" for a in node.attribute if node.op_type.startswith("Scatter"))


def _holds_sequences(schema: OpSchema) -> bool:
    """Whether tensors go into or out of sequences here, whose element type can't change on its own."""
    if schema.name == "Identity":
        return False
    return any(text.startswith(("seq(", "optional(")) for c in schema.type_constraints for text in c.allowed_type_strs)


POLICIES: Mapping[str, Policy] = {
    "fp16": Policy(sources=(F32,), storage=F16),
    "bf16": Policy(sources=(F32,), storage=BF16, emulate=True),
    "widen": Policy(sources=(BF16, F64), emulate=True),
    "as_fp16": Policy(sources=(F32,), storage=F16, emulate=True, wide=True),
    "as_bf16": Policy(sources=(F32,), storage=BF16, emulate=True, wide=True),
}
