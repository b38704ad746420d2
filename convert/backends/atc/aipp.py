"""``--preprocess`` as an AIPP configuration: what the card does to an image before the model. Pure.

AIPP gives ``(pixel - mean_chn - min_chn) * var_reci_chn``. ``mean_chn`` takes whole numbers only, so the mean goes into
``min_chn``. The order on the card is swap, crop, colour space, mean and variance, padding (ATC manual, AIPP).
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from convert.backends.preprocess import Preprocess, parse_preprocess
from convert.values import OnnxGraph

AIPP = "aipp.cfg"
ORIGIN = "preprocess.json"
"""The object that the configuration was made of, beside it: running the artifact needs it again."""
FORMATS = {
    "rgb": "RGB888_U8",
    "bgr": "RGB888_U8",
    "gray": "YUV400_U8",
    "rgbx": "XRGB8888_U8",
    "yuv420sp": "YUV420SP_U8",
}
WIDTHS, HEIGHTS = (2, 4096), (1, 4096)
"""What AIPP takes (ATC manual)."""
MOST_PADDING = 32
YUV_TO_RGB = ((256, 0, 359), (256, -88, -183), (256, 454, 0))
YUV_BIAS = (0, 128, 128)
"""YUV420SP_U8 to RGB of JPEG images: the ATC manual's colour space tables. Fixed numbers, in 1/256."""


def aipp_files(graph: OnnxGraph, text: str) -> tuple[dict[str, str], list[str]]:
    """The configuration files of ``--preprocess``, and what AIPP can't do. Raises UsageError CNV-2205."""
    how = parse_preprocess(text, graph.inputs)
    names = [spec.name for spec in graph.inputs]
    files = {AIPP: _config(how, names.index(how.input)), ORIGIN: json.dumps(json.loads(text), sort_keys=True) + "\n"}
    return files, _faults(how)


def aipp_of(files: Mapping[str, str], graph: OnnxGraph) -> Preprocess | None:
    """The object that a plan's configuration was made of; None: the plan has none."""
    return parse_preprocess(files[ORIGIN], graph.inputs) if ORIGIN in files else None


def _faults(how: Preprocess) -> list[str]:
    faults = []
    height, width = how.size
    if not WIDTHS[0] <= width <= WIDTHS[1] or not HEIGHTS[0] <= height <= HEIGHTS[1]:
        faults.append(f"AIPP takes images of 2..4096 x 1..4096, not {width} x {height}")
    if max(how.pad) > MOST_PADDING:
        faults.append(f"AIPP pads by {MOST_PADDING} at most")
    if how.image == "yuv420sp" and any(size % 2 for size in (*how.size, *how.crop)):
        faults.append("sizes and crops of YUV420 images must be even")
    return faults


def _config(how: Preprocess, place: int) -> str:
    """The text (protobuf text format) of ``--insert_op_conf``."""
    top, left, height, width = how.crop
    lines = [
        "aipp_mode: static",
        f"related_input_rank: {place}",
        f"input_format: {FORMATS[how.image]}",
        f"src_image_size_w: {how.size[1]}",
        f"src_image_size_h: {how.size[0]}",
    ]
    if (height, width) != how.size:
        lines += ["crop: true", f"load_start_pos_w: {left}", f"load_start_pos_h: {top}"]
        lines += [f"crop_size_w: {width}", f"crop_size_h: {height}"]
    if how.image == "rgbx":
        lines.append("ax_swap_switch: false")
    lines += _colour(how)
    for channel, (mean, std) in enumerate(zip(how.mean, how.std, strict=True)):
        lines.append(f"min_chn_{channel}: {_number(mean * how.scale)}")
        lines.append(f"var_reci_chn_{channel}: {_number(1 / (std * how.scale))}")
    above, below, before, after = how.pad
    if any(how.pad):
        lines += ["padding: true", f"left_padding_size: {before}", f"right_padding_size: {after}"]
        lines += [f"top_padding_size: {above}", f"bottom_padding_size: {below}"]
    return "aipp_op {\n" + "".join(f"    {line}\n" for line in lines) + "}\n"


def _colour(how: Preprocess) -> list[str]:
    if how.image != "yuv420sp":
        return ["csc_switch: false", f"rbuv_swap_switch: {'true' if how.swaps else 'false'}"]
    rows = YUV_TO_RGB if how.model == "rgb" else YUV_TO_RGB[::-1]
    matrix = [f"matrix_r{row}c{column}: {rows[row][column]}" for row in range(3) for column in range(3)]
    return ["csc_switch: true", "rbuv_swap_switch: false", *matrix, *_biases()]


def _biases() -> list[str]:
    return [f"input_bias_{channel}: {bias}" for channel, bias in enumerate(YUV_BIAS)]


def _number(value: float) -> str:
    return f"{value:.9g}"
