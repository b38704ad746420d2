"""Convert an ONNX graph to OpenVINO IR: python openvino_compile.py SETTINGS.

Runs where openvino (for int8 also nncf) is installed, and knows nothing of the program that wrote it. Relative paths
are relative to the working folder. The last line of a finished run is ``openvino_compile: done``.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
import openvino as ov


def say(text: str) -> None:
    """One line for the log."""
    sys.stdout.write("openvino_compile: " + text + "\n")
    sys.stdout.flush()


def samples(settings: dict[str, Any]) -> list[dict[str, Any]]:
    """The data to calibrate with."""
    found = []
    for path in settings["calibration"]:
        with np.load(path, allow_pickle=False) as stored:
            found.append({name: stored[name] for name in stored.files})
    return found


PRODUCTS = ("Convolution", "GroupConvolution", "ConvolutionBackpropData", "GroupConvolutionBackpropData", "MatMul")


def left_out(model: Any, keep: list[str]) -> list[str]:
    """The operations of the nodes to keep; a convolution with a bias becomes ``NODE/WithoutBiases`` and ``NODE``."""
    nodes = set(keep)
    names = [op.get_friendly_name() for op in model.get_ops()]
    return [name for name in names if name in nodes or name.rpartition("/")[0] in nodes]


def quantized(model: Any, settings: dict[str, Any]) -> Any:
    """The model in int8, weights per channel, calibrated on the samples; ``keep`` names nodes to leave out."""
    import nncf
    from nncf.quantization.range_estimator import RangeEstimatorParametersSet

    data = samples(settings)
    if not data:
        raise RuntimeError("there is no data to calibrate with")
    keep = left_out(model, settings["keep"])
    kinds = sorted({op.get_type_name() for op in model.get_ops()} - set(PRODUCTS))
    kinds = kinds if settings["scope"] == "products" else []
    say(f"calibrating on {len(data)} samples, {len(keep)} operations left out")
    ranges = {"minmax": "MINMAX", "mean": "MEAN_MINMAX", "histogram": "HISTOGRAM"}[settings["ranges"]]
    advanced = nncf.AdvancedQuantizationParameters(
        activations_range_estimator_params=getattr(RangeEstimatorParametersSet, ranges),
        disable_bias_correction=settings["bias_correction"] == "no",
    )
    return nncf.quantize(
        model,
        nncf.Dataset(data),
        subset_size=len(data),
        preset=nncf.QuantizationPreset(settings["preset"]),
        fast_bias_correction=settings["bias_correction"] != "slow",
        ignored_scope=nncf.IgnoredScope(names=keep, types=kinds, validate=False),
        advanced_parameters=advanced,
    )


def main() -> int:
    """Run the settings named on the command line; gives the exit code."""
    with open(sys.argv[1], encoding="utf-8") as stream:
        settings = json.load(stream)
    say("openvino " + ov.__version__)
    model = ov.convert_model(settings["model"])
    if settings["int8"]:
        model = quantized(model, settings)
    ov.save_model(model, settings["output"], compress_to_fp16=settings["fp16"])
    # What was written is what will be run: read it again, for the device that it is meant for.
    compiled = ov.Core().compile_model(settings["output"], settings["device"])
    say("outputs " + ", ".join(port.any_name if port.names else "?" for port in compiled.outputs))
    say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
