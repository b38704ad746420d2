"""The stand-in's .om: a line of JSON before the ONNX, and how a card of the stand-in computes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import onnx

MAGIC = b"OM-DOUBLE-1\n"


def write_om(path: Path, about: dict[str, Any], model: onnx.ModelProto) -> None:
    path.write_bytes(MAGIC + json.dumps(about).encode() + b"\n" + model.SerializeToString())


def read_om(path: Path) -> tuple[dict[str, Any], onnx.ModelProto]:
    import onnx

    content = path.read_bytes()
    if not content.startswith(MAGIC):
        raise ValueError("no .om")
    head, _, body = content[len(MAGIC) :].partition(b"\n")
    return json.loads(head), onnx.ModelProto.FromString(body)


def rounded(array: np.ndarray, kind: str) -> np.ndarray:
    """A float32 array at the precision of fp16 or bf16."""
    if array.dtype != np.float32 or kind not in ("fp16", "bf16"):
        return array
    if kind == "fp16":
        with np.errstate(over="ignore"):
            return array.astype(np.float16).astype(np.float32)
    bits = np.ascontiguousarray(array).view(np.uint32).astype(np.uint64)
    nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return nearest.astype(np.uint32).view(np.float32).reshape(array.shape)


def compute(about: dict[str, Any], model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs as the card would give them: in the precision asked for, and wrong where a fault asks for that."""
    import onnxruntime
    from onnx import numpy_helper

    kind = about["precision"]
    kept = {name for node in model.graph.node if node.name in about["keep"] for name in node.input}
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if tensor.name not in kept and array.dtype == np.float32:
            tensor.CopyFrom(numpy_helper.from_array(rounded(array, kind), tensor.name))
    if about["aipp"]:
        name, config = about["aipp"]
        feeds = {**feeds, name: apply_aipp(feeds[name], config)}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    given = {name: rounded(array, kind) for name, array in feeds.items()}
    outputs = [rounded(np.asarray(array), kind) for array in session.run(None, given)]
    if about["fault"] == "wrong":
        outputs = [array * np.float32(1.5) + 1 if array.dtype == np.float32 else array for array in outputs]
    if about["output_type"] == "FP16":
        outputs = [array.astype(np.float16) if array.dtype == np.float32 else array for array in outputs]
    return outputs


def parse_aipp(text: str) -> dict[str, str]:
    """The settings of an AIPP file; ValueError where it is none."""
    match = re.fullmatch(r"\s*aipp_op\s*\{(.*)\}\s*", text, re.DOTALL)
    if match is None:
        raise ValueError("aipp_op is missing")
    settings = {}
    for line in filter(None, (line.strip() for line in match[1].splitlines())):
        key, colon, value = line.partition(":")
        if not colon or not re.fullmatch(r"[a-z0-9_]+", key.strip()):
            raise ValueError(f"can't read {line!r}")
        settings[key.strip()] = value.strip()
    if settings.get("aipp_mode") != "static" or "input_format" not in settings:
        raise ValueError("aipp_mode or input_format is missing")
    for key in ("mean_chn_0", "mean_chn_1", "mean_chn_2"):
        if not settings.get(key, "0").isdigit():
            raise ValueError(f"{key} takes whole numbers")
    return settings


def apply_aipp(image: np.ndarray, config: dict[str, str]) -> np.ndarray:
    """uint8 [N, H, W, C] → float32 [N, C, h, w]: swap, crop, mean and variance, padding."""
    number = {key: float(value) for key, value in config.items() if re.fullmatch(r"-?[\d.]+(e-?\d+)?", value)}
    pixels = image[..., :3]
    if config.get("rbuv_swap_switch") == "true":
        pixels = pixels[..., ::-1]
    if config.get("crop") == "true":
        top, left = int(number["load_start_pos_h"]), int(number["load_start_pos_w"])
        pixels = pixels[:, top : top + int(number["crop_size_h"]), left : left + int(number["crop_size_w"])]
    planes = []
    for channel in range(pixels.shape[-1]):
        low = number.get(f"mean_chn_{channel}", 0.0) + number.get(f"min_chn_{channel}", 0.0)
        planes.append(
            (pixels[..., channel].astype(np.float32) - np.float32(low))
            * np.float32(number.get(f"var_reci_chn_{channel}", 1.0))
        )
    values = np.stack(planes, axis=1)
    if config.get("padding") == "true":
        pads = [int(number.get(f"{side}_padding_size", 0)) for side in ("top", "bottom", "left", "right")]
        values = np.pad(values, ((0, 0), (0, 0), (pads[0], pads[1]), (pads[2], pads[3])))
    return np.ascontiguousarray(values)
