"""YUV 4:2:0 images with their colours half-planar (NV12), as decoders give them: to RGB and back. Needs numpy.

An image of ``height`` x ``width`` (both even) is ``height * 3 / 2`` rows of ``width`` bytes: Y, then U and V in turns,
one pair for each square of four pixels. Full range BT.601, as JPEG has it, in 1/256: the ATC manual's table for JPEG
images (colour space conversion of AIPP), whose formula ends in ``>> 8``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from convert.backends.base import Array

YUV_TO_RGB = ((256, 0, 359), (256, -88, -183), (256, 454, 0))
YUV_BIAS = (0, 128, 128)
RGB_TO_YUV = ((0.299, 0.587, 0.114), (-0.168736, -0.331264, 0.5), (0.5, -0.418688, -0.081312))
"""ITU-T T.871 (JFIF), the inverse of the table above."""


def rows_of(height: int) -> int:
    """How many rows an image of this height has."""
    return height * 3 // 2


def rgb_of_yuv(images: Array) -> Array:
    """uint8 ``[N, H * 3 / 2, W]`` → uint8 ``[N, H, W, 3]``, by whole numbers and cut to 0..255."""
    import numpy as np

    count, rows, width = images.shape
    height = rows * 2 // 3
    colours = images[:, height:].reshape(count, height // 2, width // 2, 2)
    wide = colours.repeat(2, axis=1).repeat(2, axis=2)
    yuv = np.concatenate([images[:, :height, :, None], wide], axis=-1).astype(np.int32) - np.array(YUV_BIAS, np.int32)
    rgb: Array = np.clip((yuv @ np.array(YUV_TO_RGB, np.int32).T) >> 8, 0, 255).astype(np.uint8)
    return rgb


def yuv_of_rgb(pixels: Array) -> Array:
    """Numbers ``[N, H, W, 3]`` of 0..255 → uint8 ``[N, H * 3 / 2, W]``; four pixels share the mean of their colours."""
    import numpy as np

    count, height, width, _ = pixels.shape
    yuv = pixels.astype(np.float64) @ np.array(RGB_TO_YUV).T + np.array(YUV_BIAS)
    means = yuv[..., 1:].reshape(count, height // 2, 2, width // 2, 2, 2).mean(axis=(2, 4))
    colours = means.reshape(count, height // 2, width)
    planes: Array = np.concatenate([yuv[..., 0], colours], axis=1)
    return np.clip(np.rint(planes), 0, 255).astype(np.uint8)
