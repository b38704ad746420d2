"""Mean, deviation and scale as one LayerNormalization (opset 17 on): a compiler's own kernel is faster and safer."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto
from onnxscript.rewriter import pattern

from convert.lowering.engine import opset_of
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.fusing import fused


class _Primitives(pattern.RewriteRuleClassBase):
    """(x - mean) / sqrt(mean of squares + epsilon) · scale + bias over the last axis."""

    def __init__(self, *, axes_as_input: bool, square: str) -> None:
        super().__init__(f"axes {axes_as_input} {square}")
        self.axes_as_input, self.square = axes_as_input, square

    def _mean(self, op: Any, value: Any, axes: Any) -> Any:
        if self.axes_as_input:
            return op.ReduceMean(value, axes, _allow_other_attributes=True)
        return op.ReduceMean(value, axes=[-1], _allow_other_attributes=True)

    def pattern(self, op: Any, x: Any, axes: Any, epsilon: Any, scale: Any, bias: Any) -> Any:
        centred = op.Sub(x, self._mean(op, x, axes))
        squared = op.Mul(centred, centred) if self.square == "Mul" else op.Pow(centred, pattern.Constant(2.0))
        deviation = op.Sqrt(op.Add(self._mean(op, squared, axes), epsilon))
        return op.Add(op.Mul(op.Div(centred, deviation), scale), bias)

    def check(self, context: Any, *_: Any, **found: Any) -> Any:  # type: ignore[override]
        x, axes, epsilon, scale, bias = (found.get(name) for name in ("x", "axes", "epsilon", "scale", "bias"))
        result: Any = pattern.MatchResult()
        if self.axes_as_input:
            known = axes.const_value if axes is not None else None
            if known is None or known.numpy().reshape(-1).tolist() != [-1]:
                return result.fail("not over the last axis")
        if x is None or epsilon is None or scale is None or bias is None:
            return result.fail("a value is missing")
        number = epsilon.const_value
        if number is None or number.size != 1:
            return result.fail("epsilon is not constant")
        if any(part.shape is None or len(part.shape) != 1 for part in (scale, bias)):
            return result.fail("scale and bias are no vectors")
        if x.shape is None or x.shape[-1] != scale.shape[0] or x.shape[-1] != bias.shape[0]:
            return result.fail("scale and bias broadcast")
        return result

    def rewrite(self, op: Any, x: Any, epsilon: Any, scale: Any, bias: Any, **_: Any) -> Any:
        number = float(np.asarray(epsilon.const_value.numpy()).reshape(-1)[0])
        return op.LayerNormalization(x, scale, bias, axis=-1, epsilon=number)


make: Any = _Primitives.rule
RULES = pattern.RewriteRuleSet([make(axes_as_input=a, square=s) for a in (True, False) for s in ("Mul", "Pow")])


def run(model: ModelProto, argument: str) -> list[str]:
    """Fuse every match; says what the fused nodes make."""
    if opset_of(model) < 17:
        return []
    return fused(model, RULES, "LayerNormalization")


RULE = Rewrite(
    name="fuse-layernorm",
    title="primitives of a layer normalization as LayerNormalization",
    avoids=(Avoided(op="ReduceMean", fact="slow-primitives"), Avoided(op="Sqrt", fact="fp16-overflow")),
    run=run,
)
