"""``--preprocess`` as an AIPP configuration: what the card does to an image before the model. Pure.

AIPP gives ``(pixel - mean_chn - min_chn) * var_reci_chn`` as fp16. ``mean_chn`` takes whole numbers only, ``min_chn``
and ``var_reci_chn`` are fp16: the mean's whole part goes into the one and its rest into the other. The order on the
card is swap, crop, colour space, mean and variance, padding (ATC manual, template of the AIPP configuration).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from convert.backends.preprocess import (
    PREPROCESS_FILE,
    Preprocess,
    cut_pixels,
    parse_preprocess,
    placed,
    sized_inputs,
)
from convert.backends.yuv import YUV_BIAS, YUV_TO_RGB
from convert.values import OnnxGraph

if TYPE_CHECKING:
    from convert.backends.base import Array

AIPP = "aipp.cfg"
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
WHOLE, PARTS = (0, 255), (0.0, 255.0)
"""``mean_chn`` takes whole numbers, ``min_chn`` fp16 from 0 on (ATC manual, template of the configuration)."""


def aipp_files(graph: OnnxGraph, text: str) -> tuple[dict[str, str], list[str]]:
    """The configuration files of ``--preprocess``, and what AIPP can't do. Raises UsageError CNV-2205."""
    how = parse_preprocess(text, sized_inputs(graph.inputs, graph.dims))
    names = [spec.name for spec in graph.inputs]
    kept = json.dumps(json.loads(text), sort_keys=True) + "\n"
    files = {AIPP: _config(how, names.index(how.input)), PREPROCESS_FILE: kept}
    return files, _faults(how)


def aipp_of(files: Mapping[str, str], graph: OnnxGraph) -> Preprocess | None:
    """The object that a plan's configuration was made of; None: the plan has none."""
    text = files.get(PREPROCESS_FILE)
    return parse_preprocess(text, sized_inputs(graph.inputs, graph.dims)) if text is not None else None


def aipp_values(images: Array, how: Preprocess) -> Array:
    """What AIPP makes of uint8 images: its constants in fp16 as the card holds them, and fp16 as it gives them.

    float32 ``[N, C, h, w]``. Of the colour space the manual says ``>> 8`` and nothing of rounding or of what leaves
    0..255: it is cut here, and a card may differ by one step of a pixel.
    """
    import numpy as np

    wholes, parts, factors = zip(*_constants(how), strict=True)
    low = np.asarray(wholes, np.float32) + np.asarray(parts, np.float16).astype(np.float32)
    scaled = (cut_pixels(images, how).astype(np.float32) - low) * np.asarray(factors, np.float16).astype(np.float32)
    return placed(scaled.astype(np.float16).astype(np.float32), how)


def _constants(how: Preprocess) -> list[tuple[int, float, float]]:
    """Per channel of the model: ``mean_chn``, ``min_chn``, ``var_reci_chn``."""
    found = []
    for mean, std in zip(how.mean, how.std, strict=True):
        low = mean * how.scale
        whole = int(min(max(low, WHOLE[0]), WHOLE[1]))
        found.append((whole, low - whole, 1 / (std * how.scale)))
    return found


def _faults(how: Preprocess) -> list[str]:
    faults = []
    height, width = how.size
    if not WIDTHS[0] <= width <= WIDTHS[1] or not HEIGHTS[0] <= height <= HEIGHTS[1]:
        faults.append(f"AIPP takes images of 2..4096 x 1..4096, not {width} x {height}")
    if max(how.pad) > MOST_PADDING:
        faults.append(f"AIPP pads by {MOST_PADDING} at most")
    if how.image == "yuv420sp" and any(size % 2 for size in (*how.size, *how.crop)):
        faults.append("sizes and crops of YUV420 images must be even")
    for _, part, factor in _constants(how):
        if not PARTS[0] <= part <= PARTS[1]:
            faults.append(f"AIPP takes away 0 to 510 of a pixel at most, and a mean asks for {part:.6g} beside 0..255")
        if not 2**-14 <= abs(factor) <= 65504:
            faults.append(f"AIPP's factors are fp16, and 1 / (std * scale) is {factor:.3g}")
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
    for channel, (whole, part, factor) in enumerate(_constants(how)):
        lines += [f"mean_chn_{channel}: {whole}", f"min_chn_{channel}: {_number(part)}"]
        lines.append(f"var_reci_chn_{channel}: {_number(factor)}")
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
