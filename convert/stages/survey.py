"""What the support data say of a graph at every target, or at every toolchain version; in a worker, as all stages."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from onnx import ModelProto

from convert.graphs import read_model
from convert.lowering import LoweringRefused, lower
from convert.lowering.sound import inline_all, require_sound
from op_registry.overlay import read_overlay
from op_registry.survey import CoverageRow, Matrix, coverage, matrix
from op_registry.targets import find_target


def survey_matrix(path: str, name: str, sha256: str, targets: tuple[str, ...]) -> Matrix:
    """A graph against some targets, or all. ``name`` and ``sha256`` are those of the user's file.

    Raises :class:`ExportError` CNV-4221 and CNV-4006 for a graph that is no valid ONNX.
    """
    model = _read(path)
    wanted = [find_target(target) for target in targets]
    return matrix(model, name=name, sha256=sha256, targets=wanted, at_opset=_at_opsets(model), site=read_overlay())


def survey_coverage(path: str, vendors: tuple[str, ...]) -> tuple[CoverageRow, ...]:
    """How much of a graph each toolchain version takes. Raises as :func:`survey_matrix` does."""
    return coverage(_read(path), vendors, read_overlay())


def _read(path: str) -> ModelProto:
    """The model of a file; its local functions are inlined, as a conversion would do."""
    model = read_model(Path(path))
    require_sound(model)
    return inline_all(model)


def _at_opsets(model: ModelProto) -> Callable[[int], ModelProto | None]:
    """Gives the model at other opsets by lowering; None where a node of it has no equivalent there."""
    known: dict[int, ModelProto | None] = {}

    def at_opset(opset: int) -> ModelProto | None:
        if opset not in known:
            try:
                known[opset] = lower(model, opset)
            except LoweringRefused:
                known[opset] = None
        return known[opset]

    return at_opset
