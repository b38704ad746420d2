"""``--preprocess``: how pixels become a model's input, for compilers that build it into the artifact.

A JSON object; the artifact then takes 8-bit images, ``[N, height, width, channels]``, instead of the model's floats:

    {"image": "bgr", "model": "rgb", "size": [256, 256], "crop": [16, 16, 224, 224],
     "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}

| key | what | default |
|---|---|---|
| ``input`` | the input's name | the only input of four dimensions |
| ``image`` | what is fed: ``rgb``, ``bgr``, ``gray``, ``rgbx`` (the fourth byte unused), ``yuv420sp`` | ``rgb`` |
| ``model`` | what the model wants: ``rgb``, ``bgr``, ``gray`` | as ``image``, else ``rgb`` |
| ``size`` | height and width of what is fed | crop and padding taken back from the model's |
| ``crop`` | top, left, height, width | all of it |
| ``pad`` | top, bottom, left, right: zeros around the result | none |
| ``scale`` | what a pixel is divided by first: 255 gives 0..1, 1 leaves 0..255 | 255 |
| ``mean``, ``std`` | per channel of the model, after ``scale`` | 0 and 1 |

So a value is ``(pixel / scale - mean) / std``, as torchvision's ``ToTensor`` and ``Normalize`` have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from convert.errors import UsageError
from convert.values import TensorSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from convert.backends.base import Array

LONGEST = 4096
Image = Literal["rgb", "bgr", "gray", "rgbx", "yuv420sp"]
Wanted = Literal["rgb", "bgr", "gray", ""]
CHANNELS = {"rgb": 3, "bgr": 3, "gray": 1, "rgbx": 4}


class Preprocess(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The JSON object. ``parsed`` fills what is left out."""

    input: str = ""
    image: Image = "rgb"
    model: Wanted = ""
    size: tuple[int, int] = (0, 0)
    crop: tuple[int, int, int, int] = (0, 0, 0, 0)
    pad: tuple[int, int, int, int] = (0, 0, 0, 0)
    scale: float = 255.0
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)

    @property
    def swaps(self) -> bool:
        """Whether red and blue change places."""
        return {self.image, self.model} == {"rgb", "bgr"} or (self.image == "rgbx" and self.model == "bgr")


def parse_preprocess(text: str, inputs: Sequence[TensorSpec]) -> Preprocess:
    """Read the object, hold it against the graph's inputs and fill the defaults.

    Raises :class:`UsageError` CNV-2205 listing every fault.
    """
    try:
        given = msgspec.json.decode(text[:LONGEST].encode(), type=Preprocess)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise refused([str(error)]) from error
    spec = _input_of(given, inputs)
    faults: list[str] = []
    if len(spec.shape) != 4 or not isinstance(spec.shape[2], int) or not isinstance(spec.shape[3], int):
        raise refused([f"{spec.name} must be [N, C, H, W] with a fixed H and W; it is {list(spec.shape)}"])
    if spec.dtype not in ("float32", "float16"):
        faults.append(f"{spec.name} takes {spec.dtype}, and an image becomes floats")
    filled = _filled(given, spec.name, (spec.shape[2], spec.shape[3]))
    faults += _channel_faults(filled, spec.shape[1]) + _size_faults(filled, (spec.shape[2], spec.shape[3]))
    if faults:
        raise refused(faults)
    return filled


def refused(faults: Sequence[str]) -> UsageError:
    """The error for an object that can't be had."""
    return UsageError(
        "CNV-2205",
        f"--preprocess can't be had: {'; '.join(faults)}",
        hint='an example: {"image": "rgb", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}',
    )


def _input_of(given: Preprocess, inputs: Sequence[TensorSpec]) -> TensorSpec:
    named = [spec for spec in inputs if spec.name == given.input] if given.input else []
    found = named or ([] if given.input else [spec for spec in inputs if len(spec.shape) == 4])
    if len(found) == 1:
        return found[0]
    names = ", ".join(spec.name for spec in inputs)
    why = f"there is no input {given.input!r}" if given.input else f"{len(found)} inputs have four dimensions"
    raise refused([f"{why}; inputs: {names}"])


def _filled(given: Preprocess, name: str, model: tuple[int, int]) -> Preprocess:
    wanted = given.model or {"rgb": "rgb", "bgr": "bgr", "gray": "gray"}.get(given.image, "rgb")
    channels = 1 if wanted == "gray" else 3
    top, bottom, left, right = given.pad
    inner = (model[0] - top - bottom, model[1] - left - right)
    size = given.size if any(given.size) else (given.crop[0] + inner[0], given.crop[1] + inner[1])
    crop = given.crop if any(given.crop) else (0, 0, *size)
    return msgspec.structs.replace(
        given,
        input=name,
        model=wanted,
        size=size,
        crop=crop,
        mean=given.mean * channels if len(given.mean) == 1 else given.mean,
        std=given.std * channels if len(given.std) == 1 else given.std,
    )


def _channel_faults(given: Preprocess, channels: int | str) -> list[str]:
    wanted = 1 if given.model == "gray" else 3
    faults = []
    if channels != wanted:
        faults.append(f"the model has {channels} channels, and {given.model} has {wanted}")
    if (given.image == "gray") != (given.model == "gray"):
        faults.append(f"{given.image} can't become {given.model}")
    if len(given.mean) != wanted or len(given.std) != wanted:
        faults.append(f"mean and std need {wanted} values each")
    if not all(0 < abs(value) < 1e6 for value in given.std) or not all(abs(value) < 1e6 for value in given.mean):
        faults.append("mean and std must be sensible numbers, and std not 0")
    if not 0 < given.scale < 1e6:
        faults.append("scale must be greater than 0")
    return faults


def _size_faults(given: Preprocess, model: tuple[int, int]) -> list[str]:
    top, left, height, width = given.crop
    pads = given.pad
    faults = []
    if min(given.size) < 1 or min(given.crop) < 0 or min(pads) < 0:
        faults.append("sizes can't be negative, nor height or width 0")
    if top + height > given.size[0] or left + width > given.size[1]:
        faults.append(f"the crop leaves the image of {given.size[0]} x {given.size[1]}")
    result = (height + pads[0] + pads[1], width + pads[2] + pads[3])
    if result != model:
        faults.append(f"crop and pad give {result[0]} x {result[1]}, and the model takes {model[0]} x {model[1]}")
    return faults


def model_values(images: Array, how: Preprocess) -> Array:
    """What the artifact makes of images: uint8 ``[N, H, W, C]`` → float32 ``[N, C, h, w]``. Not for ``yuv420sp``.

    These are the values that the graph itself must be fed to give what the artifact should give.
    """
    import numpy as np

    top, left, height, width = how.crop
    cut = images[:, top : top + height, left : left + width, : 1 if how.model == "gray" else 3]
    if how.swaps:
        cut = cut[..., ::-1]
    mean, std = np.asarray(how.mean, np.float32), np.asarray(how.std, np.float32)
    values = (cut.astype(np.float32) - mean * np.float32(how.scale)) / (std * np.float32(how.scale))
    above, below, before, after = how.pad
    padded = np.pad(values, ((0, 0), (above, below), (before, after), (0, 0)))
    return np.ascontiguousarray(padded.transpose(0, 3, 1, 2), dtype=np.float32)


def image_of(values: Array, how: Preprocess) -> Array:
    """The 8-bit images behind model inputs: float ``[N, C, h, w]`` → uint8 ``[N, H, W, C]``. Not for ``yuv420sp``.

    Exact where the values were made of pixels by the same rule; else to the nearest pixel. What a crop takes away
    is black. ``model_values`` of the result says what was kept.
    """
    import numpy as np

    above, below, before, after = how.pad
    inner = np.asarray(values)[:, :, above : values.shape[2] - below, before : values.shape[3] - after]
    mean, std = np.asarray(how.mean, np.float64), np.asarray(how.std, np.float64)
    pixels = (inner.transpose(0, 2, 3, 1).astype(np.float64) * std + mean) * how.scale
    cut = np.clip(np.rint(pixels), 0, 255).astype(np.uint8)
    if how.swaps:
        cut = cut[..., ::-1]
    top, left, height, width = how.crop
    images = np.zeros((len(values), *how.size, CHANNELS[how.image]), np.uint8)
    images[:, top : top + height, left : left + width, : cut.shape[-1]] = cut
    return images
