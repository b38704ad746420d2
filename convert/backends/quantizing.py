"""int8 for compilers that read QuantizeLinear and DequantizeLinear: the pairs are put in by ONNX Runtime's quantizer.

Ranges come from the graph's calibration files, else from its samples, each run once on the CPU. Weights are quantized
per channel, everything symmetrically (zero point 0), which is what TensorRT and its like take.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from convert.backends.base import MODEL_IN
from convert.values import Note, OnnxGraph, Plan

QUANTIZED_IN = "model/quantized.onnx"
"""Where a plan finds the quantized graph."""
SETTINGS = "quantize.json"
OPS = ("QuantizeLinear", "DequantizeLinear")


def is_quantized(graph: OnnxGraph) -> bool:
    """Whether a graph already says where it is rounded."""
    return any(op in graph.ops for op in OPS)


def calibration_names(graph: OnnxGraph) -> list[str]:
    """The files to calibrate with: those given for it, else the samples."""
    for folder in ("calibration/", "samples/"):
        if found := [entry.name for entry in graph.files if entry.name.startswith(folder)]:
            return found
    return []


def settings_text(graph: OnnxGraph, keep: tuple[str, ...]) -> str:
    """What the plan keeps of it: the files to calibrate with, and the nodes that stay as they are."""
    settings = {"calibration": calibration_names(graph), "keep": list(keep), "per_channel": True, "method": "minmax"}
    return json.dumps(settings, indent=2, sort_keys=True) + "\n"


def quantize(plan: Plan, graph: OnnxGraph, folder: Path) -> tuple[Note, ...]:
    """Write ``model/quantized.onnx`` as the plan's settings say."""
    from onnxruntime.quantization.calibrate import CalibrationDataReader, CalibrationMethod
    from onnxruntime.quantization.quant_utils import QuantFormat, QuantType
    from onnxruntime.quantization.quantize import quantize_static

    settings = json.loads(plan.files[SETTINGS])
    files = [graph.path(name) for name in settings["calibration"]]

    class Reader(CalibrationDataReader):
        """Hands the samples out one by one."""

        def __init__(self) -> None:
            self.feeds = _feeds(files)

        def get_next(self) -> Any:
            """The next sample; None after the last."""
            return next(self.feeds, None)

    quantize_static(
        str(folder / MODEL_IN),
        str(folder / QUANTIZED_IN),
        Reader(),
        quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QInt8,
        weight_type=QuantType.QInt8,
        per_channel=settings["per_channel"],
        nodes_to_exclude=settings["keep"],
        calibrate_method=CalibrationMethod.MinMax,
        use_external_data_format=any(entry.name.endswith(".data") for entry in graph.files),
        extra_options={"ActivationSymmetric": True, "WeightSymmetric": True, "QuantizeBias": False},
    )
    source = "calibration files" if files and "calibration" in str(files[0]) else "samples"
    text = f"int8: ranges from {len(files)} {source} (lowest and highest value), weights per channel"
    return (Note(text=text),)


def _feeds(files: list[Path]) -> Iterator[dict[str, Any]]:
    from convert.arrays import load_npz

    for path in files:
        yield load_npz(path)
