"""What a plan needs beside the graph: the cast graph of a mixed plan, and the data to calibrate with.

The same for the working folder of a compile and for a bundle that is made for another machine.
"""

from __future__ import annotations

import json
from pathlib import Path

from convert.backends.base import MODEL_IN
from convert.backends.children import link_files
from convert.backends.migraphx.planning import MIXED_IN, MIXED_PLAN, SCRIPT_SETTINGS
from convert.values import Note, OnnxGraph, Plan


def prepare(plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
    """Put everything into a folder that already holds ``model/model.onnx`` and the files of the plan."""
    link_files(graph, calibration_names(plan, graph), folder)
    return _cast(plan, graph, folder) if MIXED_PLAN in plan.files else ()


def calibration_names(plan: Plan, graph: OnnxGraph) -> list[str]:
    """The graph's files that a plan calibrates with; none for one that doesn't."""
    if SCRIPT_SETTINGS not in plan.files:
        return []
    folders = tuple(f"{name}/" for name in json.loads(plan.files[SCRIPT_SETTINGS])["calibration"])
    return [entry.name for entry in graph.files if entry.name.startswith(folders)]


def _cast(plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
    from convert.backends.portable import write_portable
    from convert.graphs import WEIGHTS, read_model
    from convert.precision import cast_model

    asked = json.loads(plan.files[MIXED_PLAN])
    source = folder / MODEL_IN
    model = read_model(source)
    notes = cast_model(model, asked["precision"], keep=frozenset(asked["keep"]))
    external = any(entry.name == WEIGHTS for entry in graph.files)
    write_portable(model, source.parent, folder / MIXED_IN, external=external)
    return notes
