"""The bash script of tpu-mlir's commands, and the settings of the steps between them. Pure."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

import msgspec

from convert.backends.base import MODEL_IN, OUT
from convert.backends.children import calibration_places, script_text, settings_text
from convert.values import CompileOptions, OnnxGraph
from op_registry.values import Target

QUANTIZE = {"fp32": "F32", "fp16": "F16", "bf16": "BF16", "mixed": "F16", "int8": "INT8"}
WIDER = ("mixed", "int8")
"""Precisions that leave something out."""
ARTIFACT = "model.bmodel"
TABLE = "calibration.txt"
"""The ranges that int8 was made with; they stay with the artifact."""
WIDE = "wider.txt"
"""The operations that are computed in a wider type, as model_deploy reads them; they stay with the artifact, too."""
BUILD = "build.sh"
WORK = "work"
STEPS, SETTINGS = "sophgo_steps.py", "sophgo_steps.json"
LOWERED = "model/lowered.onnx"
NEWEST_IR = 8
"""tpu-mlir's ONNX Runtime 1.16.3 reads up to IR version 9; with 10 it stops with an UnboundLocalError."""
PRODUCTS = ("Conv", "Deconv", "MatMul")
BETWEEN = (
    "Add", "AvgPool", "Concat", "Flatten", "Interp", "LeakyRelu", "MaxPool", "PRelu", "Pad", "Permute", "Relu",
    "Reshape", "Slice", "SliceAxis", "Split", "Squeeze", "Unsqueeze",
)  # fmt: skip
"""Types of tpu-mlir's operations. The forecast emulates int8 for products; between two of them the others add little
error, and the casts to a wider type would cost."""

LOGICAL = ("Compare", "CompareConst")
"""What gives 0 or 1. tpu-mlir 1.30.2 casts it to uint8 by 1/255 and multiplies as if its scale were 1: magika's product
of one-hot bytes with their embedding came out cut off, at a cosine of 0.18. Such a product stays wide."""


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the backend that the script depends on."""

    opt: str
    scope: str
    calibrate: str
    wider: str


def build_files(
    graph: OnnxGraph, target: Target, options: CompileOptions, shapes: Sequence[Sequence[int]], choices: Choices
) -> dict[str, str]:
    """The plan's files: the script, the steps between and their settings."""
    settings = {
        "model": MODEL_IN,
        "lowered": LOWERED,
        "newest_ir": NEWEST_IR,
        "calibrates": options.precision == "int8",
        "mlir": f"{WORK}/model.mlir",
        "table": f"{OUT}/{WIDE}",
        "lowered_graph": f"{WORK}/model_*_tpu.mlir",
        "wide": choices.wider,
        "keep": sorted(options.keep),
        "products": PRODUCTS if options.precision == "int8" and choices.scope == "products" else (),
        "between": BETWEEN,
        "logical": LOGICAL,
    }
    return {
        BUILD: _script(graph, target, options, shapes, choices),
        STEPS: script_text(__package__, "child_steps"),
        SETTINGS: settings_text(settings),
    }


def _script(
    graph: OnnxGraph, target: Target, options: CompileOptions, shapes: Sequence[Sequence[int]], choices: Choices
) -> str:
    shape_text = json.dumps(shapes, separators=(",", ":"))
    lines = [
        "#!/usr/bin/env bash",
        "# tpu-mlir's commands, in the working folder.",
        "set -euo pipefail",
        'python="$(dirname "$(command -v model_transform.py)")/python"',
        '[ -x "$python" ] || python=python3',
        f"mkdir -p {WORK}",
        f'"$python" {STEPS} lower {SETTINGS}',
        f"cd {WORK}",
        f"model_transform.py --model_name model --model_def ../{LOWERED}"
        f" --input_shapes {shlex.quote(shape_text)} --mlir model.mlir",
    ]
    tables = ""
    if options.precision == "int8":
        count = len(calibration_places(graph))
        lines.append(
            f"run_calibration.py model.mlir --dataset ../calibration --input_num {count}"
            f" --cali_method {choices.calibrate} -o ../{OUT}/{TABLE}"
        )
        tables += f" --calibration_table ../{OUT}/{TABLE}"
    if options.precision in WIDER:
        lines.append(f'(cd .. && "$python" {STEPS} table {SETTINGS})')
        tables += f" --quantize_table ../{OUT}/{WIDE}"
    lines.append(
        f"model_deploy.py --mlir model.mlir --quantize {QUANTIZE[options.precision]}{tables}"
        f" --chip {target.name.lower()} --opt {choices.opt} --model {ARTIFACT}"
    )
    if options.precision in WIDER:
        lines.append(f'(cd .. && "$python" {STEPS} check {SETTINGS})')
    lines.append(f"mv {ARTIFACT} ../{OUT}/{ARTIFACT}")
    return "\n".join(lines) + "\n"
