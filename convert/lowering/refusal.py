"""What lowering says when it can't: every node by name, all at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from convert.errors import ExportError


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """One node that has no equivalent: ``op`` as ``domain::type`` (no domain for ONNX's own), the step, and why."""

    op: str
    node: str
    from_opset: int
    to_opset: int
    reason: str

    def __str__(self) -> str:
        return f"{self.op} '{self.node}' (opset {self.from_opset} to {self.to_opset}): {self.reason}"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something wrong with a model file. ``rule`` is a fixed word, ``subject`` the node, value or domain concerned."""

    rule: str
    level: Literal["error", "warning"]
    subject: str
    text: str


class LoweringRefused(ExportError):
    """A graph can't be brought to an opset. ``refusals`` has every node concerned (exit 4)."""

    def __init__(self, opset: int, refusals: Sequence[Refusal]) -> None:
        self.opset = opset
        self.refusals = tuple(refusals)
        super().__init__(
            "CNV-4101",
            f"{len(refusals)} node(s) have no equivalent at opset {opset}: " + "; ".join(map(str, refusals)),
            hint="ask for a higher opset, or change these operators in the model; 'convert explain CNV-4101' says how",
        )

    def as_json(self) -> dict[str, object]:
        """The error as commands print it, with one entry per node."""
        return super().as_json() | {"refusals": [msgspec.to_builtins(refusal) for refusal in self.refusals]}
