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

from typing import TYPE_CHECKING, Any, Literal

import msgspec

from convert.backends.yuv import rgb_of_yuv, rows_of, yuv_of_rgb
from convert.errors import UsageError
from convert.values import DimRange, TensorSpec

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from convert.backends.base import Array

LONGEST = 4096
PREPROCESS_FILE = "preprocess.json"
"""The object among the files of a plan, beside what the compiler is told: running the artifact needs it again."""
ROUNDS = 0.5
"""So far beyond 0..255 a number may lie and still be the pixel at the end."""
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

    @property
    def turns(self) -> bool:
        """Whether the model wants the colours in the other order than the pixels of what is fed have them."""
        return self.swaps or (self.image == "yuv420sp" and self.model == "bgr")


class ImageOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What ``images`` reads of a request. ``given``: the samples are the user's own; else images are made up."""

    backend: str
    preprocess: str
    given: bool = False
    seed: int = 0


def parse_preprocess(text: str, inputs: Sequence[TensorSpec]) -> Preprocess:
    """Read the object, hold it against the graph's inputs and fill the defaults.

    Raises :class:`UsageError` CNV-2205 listing every fault.
    """
    given = _decoded(text)
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


def _decoded(text: str) -> Preprocess:
    try:
        return msgspec.json.decode(text[:LONGEST].encode(), type=Preprocess)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise refused([str(error)]) from error


def sized_inputs(inputs: Sequence[TensorSpec], dims: Sequence[DimRange]) -> tuple[TensorSpec, ...]:
    """The inputs with every symbolic dimension that has one size replaced by that size."""
    sizes = {dim.name: dim.sizes[0] for dim in dims if len(set(dim.sizes)) == 1}
    sizes |= {dim.name: dim.low for dim in dims if not dim.sizes and dim.low == dim.high}
    return tuple(
        msgspec.structs.replace(
            spec, shape=tuple(sizes.get(dim, dim) if isinstance(dim, str) else dim for dim in spec.shape)
        )
        for spec in inputs
    )


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
    faults += _lengths(given)
    if not all(0 < abs(value) < 1e6 for value in given.std) or not all(abs(value) < 1e6 for value in given.mean):
        faults.append("mean and std must be sensible numbers, and std not 0")
    if not 0 < given.scale < 1e6:
        faults.append("scale must be greater than 0")
    return faults


def _lengths(given: Preprocess) -> list[str]:
    wanted = 1 if given.model == "gray" else 3
    right = len(given.mean) == len(given.std) == wanted
    return [] if right else [f"mean and std need {wanted} values each"]


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


# ------------------------------------------------------------------------------------------------- images and values


def image_shape(how: Preprocess, count: int) -> tuple[int, ...]:
    """The shape of what is fed: ``[N, H, W, C]``, for ``yuv420sp`` ``[N, H * 3 / 2, W]``."""
    if how.image == "yuv420sp":
        return (count, rows_of(how.size[0]), how.size[1])
    return (count, *how.size, CHANNELS[how.image])


def cut_pixels(images: Array, how: Preprocess) -> Array:
    """The pixels that the model sees, in its order of colours: uint8 images → uint8 ``[N, h, w, c]``."""
    top, left, height, width = how.crop
    colours = rgb_of_yuv(images) if how.image == "yuv420sp" else images
    cut = colours[:, top : top + height, left : left + width, : 1 if how.model == "gray" else 3]
    return cut[..., ::-1] if how.turns else cut


def placed(values: Array, how: Preprocess) -> Array:
    """Values ``[N, h, w, c]`` with the padding around them, as the model takes them: float32 ``[N, C, H, W]``."""
    import numpy as np

    above, below, before, after = how.pad
    padded = np.pad(values, ((0, 0), (above, below), (before, after), (0, 0)))
    return np.ascontiguousarray(padded.transpose(0, 3, 1, 2), dtype=np.float32)


def model_values(images: Array, how: Preprocess) -> Array:
    """What a model's inputs are by the rule: uint8 images (:func:`image_shape`) → float32 ``[N, C, h, w]``."""
    import numpy as np

    cut = cut_pixels(images, how).astype(np.float32)
    mean, std = np.asarray(how.mean, np.float32), np.asarray(how.std, np.float32)
    return placed((cut - mean * np.float32(how.scale)) / (std * np.float32(how.scale)), how)


def pixels_of(values: Array, how: Preprocess) -> Array:
    """The rule taken back, neither rounded nor cut: float ``[N, C, h, w]`` → float64 ``[N, h, w, c]`` in 0..255.

    Where the values were not made by the rule, numbers are not whole, or lie outside 0..255.
    """
    import numpy as np

    above, below, before, after = how.pad
    inner = np.asarray(values)[:, :, above : values.shape[2] - below, before : values.shape[3] - after]
    mean, std = np.asarray(how.mean, np.float64), np.asarray(how.std, np.float64)
    pixels: Array = (inner.transpose(0, 2, 3, 1).astype(np.float64) * std + mean) * how.scale
    return pixels


def image_of(values: Array, how: Preprocess) -> Array:
    """The 8-bit images behind model inputs: float ``[N, C, h, w]`` → uint8 images (:func:`image_shape`).

    Exact where the values were made of pixels by the same rule; else to the nearest pixel. What a crop takes away
    is black. ``yuv420sp`` keeps one colour for four pixels. ``model_values`` of the result says what was kept.
    """
    import numpy as np

    cut = np.clip(np.rint(pixels_of(values, how)), 0, 255)
    if how.turns:
        cut = cut[..., ::-1]
    top, left, height, width = how.crop
    channels = CHANNELS.get(how.image, 3)
    pixels = np.zeros((len(values), *how.size, channels), np.uint8)
    pixels[:, top : top + height, left : left + width, : cut.shape[-1]] = cut
    return yuv_of_rgb(pixels) if how.image == "yuv420sp" else pixels


def outside(values: Array, how: Preprocess) -> float:
    """The share of values that no 8-bit pixel gives: NaN, or beyond 0..255 after the rule is taken back."""
    import numpy as np

    pixels = pixels_of(values, how)
    inside = (pixels >= -ROUNDS) & (pixels <= 255 + ROUNDS)
    return 1 - float(np.mean(inside)) if pixels.size else 0.0


# ------------------------------------------------------------------------------------------------- images as samples


def developed(arrays: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A sample with 8-bit images in the place of the floats: the images become what the model takes by the rule.

    Arrays by name, as the user gave them. The one meant is called as ``input`` of the object says, else it is the only
    one that has the form of an image. Nothing changes where there is none. Raises UsageError CNV-2287 for images of
    another size.
    """
    given = _decoded(text)
    meant = [given.input] if given.input in arrays else list(arrays)
    names = [name for name in meant if is_image(arrays[name], given)]
    if len(names) != 1:
        return dict(arrays)
    images = _plain(arrays[names[0]])
    height, width = images.shape[1:3]
    size = (height * 2 // 3, width) if given.image == "yuv420sp" else (height, width)
    if given.size not in ((0, 0), size):
        asked = f"{given.size[0]} x {given.size[1]}"
        raise UsageError(
            "CNV-2287",
            f"the images of {names[0]} are {size[0]} x {size[1]}, and --preprocess says {asked}",
            hint='give images of that size, or say theirs: "size": [height, width]',
        )
    model = padded_size((given.crop[2], given.crop[3]) if any(given.crop) else size, given)
    filled = _filled(msgspec.structs.replace(given, size=size), names[0], model)
    if faults := _size_faults(filled, model) + _channel_faults(filled, 1 if filled.model == "gray" else 3):
        raise refused(faults)
    return {**arrays, names[0]: model_values(images, filled)}


def padded_size(inner: tuple[int, int], how: Preprocess) -> tuple[int, int]:
    """Height and width with the padding around."""
    return inner[0] + how.pad[0] + how.pad[1], inner[1] + how.pad[2] + how.pad[3]


def is_image(value: Any, how: Preprocess) -> bool:
    """Whether an array (or a tensor) is 8-bit images of the kind that the object names."""
    shape = tuple(getattr(value, "shape", ()))
    if not str(getattr(value, "dtype", "")).endswith("uint8"):
        return False
    if how.image == "yuv420sp":
        return len(shape) == 3 and shape[1] % 3 == 0 and shape[2] % 2 == 0
    return len(shape) == 4 and shape[3] == CHANNELS[how.image]


def _plain(value: Any) -> Array:
    import numpy as np

    return np.asarray(value)
