"""Sample inputs: the user's own, or random ones from a seed.

Given samples are a ``.npz`` by input name, a ``.pt`` holding ``(args, kwargs)``, a folder of either, or a callable that
gives such values. Random samples are made where shapes and dtypes are known; an integer input needs samples or a
range, because an index must not be guessed. Runs in the worker only (imports numpy, and torch for ``.pt``).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from convert.arrays import Array, load_npz
from convert.errors import UsageError
from convert.loading.user_code import Guarded, import_callable, one_line
from convert.loading.zips import DAMAGE
from convert.values import DimRange, TensorSpec

MAX_SAMPLES = 256
MAX_EXPANSION = 4 << 30
SIZES = {"batch": (2, 3), "image": (224, 256), "other": (16, 24)}
"""Sizes for a symbolic dimension that ``--dim`` says nothing of: first axis, height or width of an image, any other.
All are above 1, because exporters read 0 and 1 as constants; the image sizes are multiples of 32."""


@dataclasses.dataclass(frozen=True)
class Given:
    """One sample as the user gave it: arrays or tensors by name, or the arguments of a call."""

    named: dict[str, Any] | None = None
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = dataclasses.field(default_factory=dict)
    source: str = ""


def read_samples(text: str) -> list[Given]:
    """The samples that ``--samples`` names, in order (a folder: sorted by file name).

    Raises :class:`UsageError`: CNV-2014 nothing there or no such form, CNV-2015 a file can't be read or needs trust,
    CNV-2016 the callable fails or gives something else.
    """
    path = Path(text)
    if path.is_dir():
        return read_folder(path)
    if path.is_file() and path.suffix != ".py":
        return [read_file(path)]
    if ":" in text:
        return call_samples(text)
    raise UsageError(
        "CNV-2014",
        f"--samples {text}: there is no such file or folder",
        hint="give a .npz by input name, a .pt holding (args, kwargs), a folder of either, or module:callable",
    )


def read_folder(path: Path) -> list[Given]:
    """One sample from each ``.npz`` and ``.pt`` of a folder."""
    files = sorted(item for item in path.iterdir() if item.suffix in (".npz", ".pt", ".pth") and item.is_file())
    if not files:
        raise UsageError(
            "CNV-2014",
            f"--samples {path}: the folder holds no .npz or .pt file",
            hint="put one file for each sample into it; files are taken in the order of their names",
        )
    if len({item.suffix == ".npz" for item in files}) > 1:
        raise UsageError("CNV-2014", f"--samples {path}: both .npz and .pt files", hint="use one kind in a folder")
    return [read_file(item) for item in files[:MAX_SAMPLES]]


def read_file(path: Path) -> Given:
    """One sample from a file, told apart by its content."""
    try:
        if not zipfile.is_zipfile(path):
            return read_torch(path)
        with zipfile.ZipFile(path) as archive:
            infos = archive.infolist()
        if sum(info.file_size for info in infos) > max(MAX_EXPANSION, 20 * path.stat().st_size):
            raise ValueError("it expands to an absurd size")
        if any(info.filename.endswith(".npy") for info in infos):
            return Given(named=load_npz(path), source=path.name)
    except DAMAGE as error:
        raise unreadable(path, one_line(error)) from error
    return read_torch(path)


def unreadable(path: Path, why: str) -> UsageError:
    """The error for a file of samples that can't be read."""
    return UsageError(
        "CNV-2015",
        f"--samples: {path.name} can't be read: {why}",
        hint="write np.savez('samples.npz', x=array) or torch.save(((x,), {}), 'samples.pt'), with plain tensors only",
    )


def read_torch(path: Path) -> Given:
    """A sample from a ``.pt``; nothing but tensors and plain containers is unpickled."""
    import torch

    hint = "save plain tensors: torch.save(((x,), {}), 'samples.pt'); objects of classes are not loaded"
    with Guarded("CNV-2015", f"--samples: {path.name} can't be read", hint=hint, error=UsageError):
        value = torch.load(path, map_location="cpu", weights_only=True)
    return understood(value, path.name)


def understood(value: object, source: str) -> Given:
    """What a value means as a sample: ``(args, kwargs)``, arguments, arrays by name, or one tensor."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return Given(named=dict(value), source=source)
    if isinstance(value, (tuple, list)):
        if len(value) == 2 and isinstance(value[0], (tuple, list)) and is_keywords(value[1]):
            return Given(args=tuple(value[0]), kwargs=dict(value[1]), source=source)
        return Given(args=tuple(value), source=source)
    if hasattr(value, "shape"):
        return Given(args=(value,), source=source)
    raise UsageError(
        "CNV-2015",
        f"--samples: {source} holds a {type(value).__name__}, which is no sample",
        hint="a sample is (args, kwargs), a tuple of arguments, arrays by input name, or one tensor",
    )


def is_keywords(value: object) -> bool:
    """Whether a value can be keyword arguments."""
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def call_samples(text: str) -> list[Given]:
    """Samples from the user's callable: it returns or yields them, at most :data:`MAX_SAMPLES` are taken."""
    make = import_callable(text, "--samples")
    hint = "it takes no arguments and returns or yields samples: (args, kwargs), or arrays by input name"
    with Guarded("CNV-2016", f"--samples {text} failed", hint=hint, error=UsageError):
        made = make()
        several = made if isinstance(made, (Iterator, list)) else [made]
        found = list(itertools.islice(several, MAX_SAMPLES))
    if not found:
        raise UsageError("CNV-2016", f"--samples {text} gives no samples", hint=hint)
    return [understood(value, f"sample {index}") for index, value in enumerate(found)]


# -------------------------------------------------------------------------------------------------------------- random


def check_integers(specs: Sequence[TensorSpec], ranges: Mapping[str, tuple[float, float]]) -> None:
    """Refuse to guess integers: CNV-2021 names every integer input without a range (uint8 has its own: 0 to 255)."""
    needing = [spec for spec in specs if "int" in spec.dtype and spec.dtype != "uint8" and spec.name not in ranges]
    if needing:
        shown = ", ".join(f"{spec.name} ({spec.dtype}{shape_text(spec)})" for spec in needing)
        example = needing[0]
        raise UsageError(
            "CNV-2021",
            f"integer inputs can't be made up, an index out of range would break the model: {shown}",
            hint=f"give sample inputs (--samples FILE.npz or FILE.pt), or the range of the values: "
            f"--input '{example.name}:{example.dtype}{shape_text(example)}{{0..999}}'",
        )


def shape_text(spec: TensorSpec) -> str:
    """``[N,3,224,224]``"""
    return "[" + ",".join(str(dim) for dim in spec.shape) + "]"


def random_samples(
    specs: Sequence[TensorSpec], ranges: Mapping[str, tuple[float, float]], dims: Sequence[DimRange], seed: int
) -> list[dict[str, Array]]:
    """Random arrays by input name: one sample, or two at different sizes where a dimension is symbolic.

    Floats are standard normal (or uniform in their range), booleans fair coins, uint8 0 to 255. Raises
    :class:`UsageError` CNV-2021 for an integer input without a range.
    """
    check_integers(specs, ranges)
    generator = np.random.default_rng(seed)
    sizes = sample_sizes(specs, dims)
    return [
        {spec.name: random_array(spec, sizes[index], ranges.get(spec.name), generator) for spec in specs}
        for index in range(len(sizes))
    ]


def sample_sizes(specs: Sequence[TensorSpec], dims: Sequence[DimRange]) -> list[dict[str, int]]:
    """For each random sample a size of every symbolic dimension, inside the ranges and above 1 where possible."""
    ranges = {entry.name: entry for entry in dims}
    symbolic = any(isinstance(dim, str) for spec in specs for dim in spec.shape)
    found: list[dict[str, int]] = [{} for _ in range(2 if symbolic else 1)]
    for spec in specs:
        for axis, dim in enumerate(spec.shape):
            if isinstance(dim, str) and dim not in found[0]:
                first, second = two_sizes(ranges.get(dim), SIZES[role(spec, axis)])
                found[0][dim], found[1][dim] = first, second
    return found


def role(spec: TensorSpec, axis: int) -> str:
    """What an axis probably is: the batch, an edge of an image, or something else."""
    if axis == 0:
        return "batch"
    image = len(spec.shape) == 4 and (spec.shape[1] in (1, 3, 4) or spec.shape[3] in (1, 3, 4))
    return "image" if image and spec.shape[axis] not in (1, 3, 4) and len(spec.shape) == 4 else "other"


def two_sizes(known: DimRange | None, usual: tuple[int, int]) -> tuple[int, int]:
    """Two sizes of a dimension, the same twice where it has only one."""
    if known is None:
        return usual
    if known.sizes:
        by_use = sorted(known.sizes, key=lambda size: (size < 2, size))
        return by_use[0], by_use[1 % len(by_use)]
    wanted = (*usual, known.low, known.low + 1, known.high - 1, known.high)
    allowed = [size for size in wanted if size >= max(known.low, 1) and (not known.high or size <= known.high)]
    by_use = list(dict.fromkeys(sorted(allowed, key=lambda size: size < 2)))
    return by_use[0], by_use[1 % len(by_use)]


def random_array(
    spec: TensorSpec, sizes: Mapping[str, int], values: tuple[float, float] | None, generator: np.random.Generator
) -> Array:
    """One random array; complex numbers have normal parts."""
    shape = tuple(sizes[dim] if isinstance(dim, str) else dim for dim in spec.shape)
    if math.prod(shape) > 1 << 32:
        raise UsageError(
            "CNV-2017", f"input {spec.name} of shape {list(shape)} is too large", hint="give smaller sizes with --dim"
        )
    if spec.dtype == "bool":
        return np.asarray(generator.random(shape) < 0.5)
    if "int" in spec.dtype:
        low, high = (int(values[0]), int(values[1])) if values else (0, 255)
        return np.asarray(generator.integers(low, high, size=shape, endpoint=True), dtype=spec.dtype)
    if spec.dtype.startswith("complex"):
        return np.asarray(generator.standard_normal(shape) + 1j * generator.standard_normal(shape), dtype=spec.dtype)
    plain = generator.uniform(*values, size=shape) if values else generator.standard_normal(shape)
    return np.asarray(plain).astype(dtype_of(spec.dtype))


def dtype_of(name: str) -> np.dtype[Any]:
    """A numpy dtype by name, bfloat16 and float8 included."""
    if name.startswith(("bfloat", "float8")):
        import ml_dtypes

        return cast("np.dtype[Any]", np.dtype(getattr(ml_dtypes, name)))
    return np.dtype(name)
