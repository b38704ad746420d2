"""Opset lowering: any ONNX graph to any opset from 11 on that its meaning allows, by small rules per operator and step.

    lower(model, opset)   the same function at another opset, or LoweringRefused with every node that has no equivalent
    lint(model)           everything that is wrong with a file, in one go

Reading order: ``refusal.py``, ``engine.py``, ``site.py`` (what a rule sees), ``facts.py``, ``narrow.py``,
``functions.py``, ``table.py``, then ``rules/``, one file per operator family.
Importing this package imports no onnx; calling its functions does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from convert.lowering.refusal import Finding, LoweringRefused, Refusal

if TYPE_CHECKING:
    import onnx

__all__ = ["Finding", "LoweringRefused", "Refusal", "lint", "lower"]


def lower(model: onnx.ModelProto, opset: int) -> onnx.ModelProto:
    """The same model at another version of the default operator set; the given model is left as it is.

    Lowers and raises, in subgraphs and local functions too. External data is neither read nor copied: references stay
    as they are. Raises ``LoweringRefused`` (CNV-4101) listing every node without an equivalent, and CNV-4102 where
    ``opset`` is outside of what can be asked for.
    """
    from convert.lowering.engine import lower_model

    return lower_model(model, opset)


def lint(model: onnx.ModelProto) -> tuple[Finding, ...]:
    """Everything that is wrong with a model, in one go, in the order of the graph. Reads no external data."""
    from convert.lowering.linting import findings

    return findings(model)
