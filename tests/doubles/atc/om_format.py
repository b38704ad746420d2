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
    from amct_tool import runnable
    from onnx import numpy_helper

    model = runnable(model)
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


AIPP_KEYS = {
    *("aipp_mode", "related_input_rank", "input_format", "src_image_size_w", "src_image_size_h"),
    *("crop", "load_start_pos_w", "load_start_pos_h", "crop_size_w", "crop_size_h"),
    *("csc_switch", "rbuv_swap_switch", "ax_swap_switch", "padding"),
    *(f"{side}_padding_size" for side in ("left", "right", "top", "bottom")),
    *(f"{kind}_chn_{channel}" for kind in ("mean", "min", "var_reci") for channel in range(4)),
    *(f"matrix_r{row}c{column}" for row in range(3) for column in range(3)),
    *(f"{side}_bias_{channel}" for side in ("input", "output") for channel in range(3)),
}
"""Settings of the manual's template that a static AIPP of 8-bit images takes."""
AIPP_CHANNELS = {"RGB888_U8": 3, "XRGB8888_U8": 4, "YUV400_U8": 1}


def parse_aipp(text: str) -> dict[str, str]:
    """The settings of an AIPP file; ValueError where it is none."""
    match = re.fullmatch(r"\s*aipp_op\s*\{(.*)\}\s*", text, re.DOTALL)
    if match is None:
        raise ValueError("aipp_op is missing")
    settings = {}
    for line in filter(None, (line.strip() for line in match[1].splitlines())):
        key, colon, value = line.partition(":")
        if not colon or key.strip() not in AIPP_KEYS or key.strip() in settings:
            raise ValueError(f"can't read {line!r}")
        settings[key.strip()] = value.strip()
    if settings.get("aipp_mode") != "static" or settings.get("input_format") not in (*AIPP_CHANNELS, "YUV420SP_U8"):
        raise ValueError("aipp_mode or input_format is missing")
    for channel in range(4):
        whole = settings.get(f"mean_chn_{channel}", "0")
        if not whole.isdigit() or int(whole) > 255:
            raise ValueError(f"mean_chn_{channel} takes whole numbers of 0 to 255")
        if not 0 <= float(settings.get(f"min_chn_{channel}", "0")) <= 255:
            raise ValueError(f"min_chn_{channel} takes 0 to 255")
        if abs(float(settings.get(f"var_reci_chn_{channel}", "1"))) > 65504:
            raise ValueError(f"var_reci_chn_{channel} is fp16")
    sizes = [int(settings.get(f"src_image_size_{side}", "2")) for side in "wh"]
    if settings["input_format"] == "YUV420SP_U8" and (any(size % 2 for size in sizes) or "matrix_r0c0" not in settings):
        raise ValueError("YUV420 wants even sizes and a matrix")
    if settings.get("csc_switch") == "true" and settings["input_format"] == "YUV400_U8":
        raise ValueError("YUV400 has no colours to convert")
    return settings


def aipp_shape(config: dict[str, str], batch: int) -> list[int]:
    """What the card is fed: packed pixels, or NV12."""
    height, width = int(config["src_image_size_h"]), int(config["src_image_size_w"])
    if config["input_format"] == "YUV420SP_U8":
        return [batch, height * 3 // 2, width]
    return [batch, height, width, AIPP_CHANNELS[config["input_format"]]]


def nv12_pixels(frame: np.ndarray, config: dict[str, str]) -> np.ndarray:
    """One NV12 frame to three channels by the configured matrix, pixel by pixel as the manual's formula says it."""
    height = frame.shape[0] * 2 // 3
    matrix = [[int(config[f"matrix_r{row}c{column}"]) for column in range(3)] for row in range(3)]
    bias = [int(config.get(f"input_bias_{channel}", "0")) for channel in range(3)]
    out = np.zeros((height, frame.shape[1], 3), np.uint8)
    for y in range(height):
        for x in range(frame.shape[1]):
            at = height + y // 2, x // 2 * 2
            given = (int(frame[y, x]), int(frame[at[0], at[1]]), int(frame[at[0], at[1] + 1]))
            less = [value - lower for value, lower in zip(given, bias, strict=True)]
            for channel, row in enumerate(matrix):
                value = sum(factor * part for factor, part in zip(row, less, strict=True)) >> 8
                out[y, x, channel] = min(255, max(0, value))
    return out


def apply_aipp(image: np.ndarray, config: dict[str, str]) -> np.ndarray:
    """uint8 as the card is fed → float32 [N, C, h, w]: swap, crop, colour space, mean and variance in fp16, padding."""
    number = {key: float(value) for key, value in config.items() if re.fullmatch(r"-?[\d.]+(e-?\d+)?", value)}
    yuv = config["input_format"] == "YUV420SP_U8"
    pixels = np.stack([nv12_pixels(frame, config) for frame in image]) if yuv else image[..., :3]
    if config.get("rbuv_swap_switch") == "true":
        pixels = pixels[..., ::-1]
    if config.get("crop") == "true":
        top, left = int(number["load_start_pos_h"]), int(number["load_start_pos_w"])
        pixels = pixels[:, top : top + int(number["crop_size_h"]), left : left + int(number["crop_size_w"])]
    planes = []
    for channel in range(pixels.shape[-1]):
        low = number.get(f"mean_chn_{channel}", 0.0) + float(np.float16(number.get(f"min_chn_{channel}", 0.0)))
        factor = np.float32(np.float16(number.get(f"var_reci_chn_{channel}", 1.0)))
        planes.append(((pixels[..., channel].astype(np.float32) - np.float32(low)) * factor).astype(np.float16))
    values = np.stack(planes, axis=1).astype(np.float32)
    if config.get("padding") == "true":
        pads = [int(number.get(f"{side}_padding_size", 0)) for side in ("top", "bottom", "left", "right")]
        values = np.pad(values, ((0, 0), (0, 0), (pads[0], pads[1]), (pads[2], pads[3])))
    return np.ascontiguousarray(values)
