"""Graphs of a few lines with samples and reference outputs, as the stages hand them on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser

from convert.graphs import MODEL, facts, model_entries, write_samples
from convert.ort import exact_settings, run_samples
from convert.values import OnnxGraph

Feed = Mapping[str, np.ndarray[Any, Any]]
MakeGraph = Callable[..., OnnxGraph]


def parsed(text: str, opset: int = 17) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')


def graph_in(
    folder: Path, model: onnx.ModelProto, feeds: Sequence[Feed], calibration: Sequence[Feed] = ()
) -> OnnxGraph:
    folder.mkdir(parents=True)
    (folder / MODEL).write_bytes(model.SerializeToString())
    outputs = run_samples(folder / MODEL, feeds, exact_settings(folder / MODEL))
    names = write_samples(folder, [dict(feed) for feed in feeds], outputs)
    for number, feed in enumerate(calibration):
        np.savez(folder / f"c{number}.npz", **feed)
        (folder / "calibration").mkdir(exist_ok=True)
        (folder / f"c{number}.npz").rename(folder / "calibration" / f"{number:03d}.npz")
        names.append(f"calibration/{number:03d}.npz")
    return OnnxGraph(
        parent="sha256:" + "0" * 64,
        stage="simplify",
        sample_count=len(feeds),
        calibration_count=len(calibration),
        files=model_entries(folder, [MODEL, *names]),
        folder=str(folder),
        **facts(model),
    )
