"""A graph cast before the compiler sees it, for compilers that take types from the model alone."""

from __future__ import annotations

import json
from pathlib import Path

from convert.backends.base import MODEL_IN
from convert.values import Note, OnnxGraph, Plan

CAST_IN = "model/cast.onnx"
"""Where a plan finds the graph that was cast."""
CAST = "cast.json"
"""The file of a plan that says how: ``precision``, and ``keep``, the nodes that stay in fp32."""


def cast(plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
    """Write ``model/cast.onnx`` as the plan says, beside ``model/model.onnx``; nothing where it does not say so."""
    if CAST not in plan.files:
        return ()
    from convert.backends.portable import write_portable
    from convert.graphs import WEIGHTS, read_model
    from convert.precision import cast_model

    asked = json.loads(plan.files[CAST])
    source = folder / MODEL_IN
    model = read_model(source)
    notes = cast_model(model, asked["precision"], keep=frozenset(asked["keep"]))
    write_portable(model, source.parent, folder / CAST_IN, external=any(entry.name == WEIGHTS for entry in graph.files))
    return notes
