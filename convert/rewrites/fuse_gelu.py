"""The primitives of Gelu as one Gelu (opset 20 on): a compiler's own kernel is faster than eight nodes."""

from __future__ import annotations

import math
from typing import Any

import onnx
from onnx import ModelProto
from onnxscript.rewriter import pattern

from convert.lowering.engine import opset_of
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.fusing import fused

HALF, ROOT, ONE = 0.5, math.sqrt(2), 1.0


class _Erf(pattern.RewriteRuleClassBase):
    """x · (1 + erf(x / √2)) · 1/2, in the two orders that exporters write."""

    def __init__(self, *, half_first: bool) -> None:
        super().__init__("half first" if half_first else "half last")
        self.half_first = half_first

    def pattern(self, op: Any, x: Any) -> Any:
        curve = op.Erf(op.Div(x, pattern.Constant(ROOT, rel_tol=1e-4)))
        moved = op.Add(curve, pattern.Constant(ONE))
        if self.half_first:
            return op.Mul(op.Mul(x, pattern.Constant(HALF)), moved)
        return op.Mul(op.Mul(x, moved), pattern.Constant(HALF))

    def rewrite(self, op: Any, x: Any) -> Any:
        return op.Gelu(x)


make: Any = _Erf.rule
RULES = pattern.RewriteRuleSet([make(half_first=True), make(half_first=False)], commute=True)


def run(model: ModelProto, argument: str) -> list[str]:
    """Fuse every match; says what the fused nodes make."""
    if opset_of(model) < 20:
        return []
    return fused(model, RULES, "Gelu")


def newest() -> int:
    """The first opset that has Gelu."""
    return int(onnx.defs.get_schema("Gelu").since_version)


RULE = Rewrite(
    name="fuse-gelu",
    title="primitives of Gelu as Gelu",
    avoids=(Avoided(op="Erf", fact="slow-primitives"),),
    run=run,
)
