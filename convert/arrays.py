"""Named arrays on disk: ``.npz`` files of samples and outputs, extension dtypes (bfloat16, float8, int4) included.

numpy stores an extension dtype as raw bytes and forgets what it was. Such an array is stored as unsigned integers
under ``NAME@DTYPE``, and read back as what it was. Objects (pickles) are never read.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np

from convert.loading.zips import DAMAGE

Array = np.ndarray[Any, np.dtype[Any]]
MARK = "@"


def save_npz(path: Path, arrays: Mapping[str, Array]) -> None:
    """Write arrays in the order given; the same arrays give the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not np.savez: its keyword arguments refuse inputs that are called `file` or `allow_pickle`.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            key, plain = name, array
            # float8_e5m2 says that it is a float, and numpy can't read what it then writes.
            if array.dtype.names is None and (array.dtype.kind == "V" or array.dtype.type.__module__ == "ml_dtypes"):
                key, plain = (
                    f"{name}{MARK}{array.dtype.name}",
                    array.view(f"u{array.dtype.itemsize}"),
                )
            with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(plain), allow_pickle=False)


def load_npz(path: Path) -> dict[str, Array]:
    """Read arrays in the order they were written. Raises ValueError or OSError for a file that is none of ours."""
    arrays: dict[str, Array] = {}
    try:
        # Not np.load: it takes a single array for a file of arrays, and memory for whatever a header promises.
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                with archive.open(entry) as stream:
                    array = _read_array(stream, entry.file_size)
                key = entry.filename.removesuffix(".npy")
                name, mark, dtype = key.rpartition(MARK)
                extension = _extension_dtype(dtype) if mark else None
                arrays[key if extension is None else name] = array if extension is None else array.view(extension)
    except (OSError, ValueError):
        raise
    except DAMAGE as error:
        raise ValueError(f"it is no sound .npz: {error}") from error
    return arrays


def load_npy(path: Path) -> Array:
    """Read one ``.npy``. Raises ValueError or OSError for a file that is none, holds objects or is cut off."""
    with path.open("rb") as stream:
        return _read_array(stream, path.stat().st_size)


def _read_array(stream: IO[bytes], size: int) -> Array:
    """An array of a stream of ``size`` bytes; a header that promises more is refused before memory is taken for it."""
    formats = np.lib.format
    version = formats.read_magic(stream)
    read = formats.read_array_header_1_0 if version == (1, 0) else formats.read_array_header_2_0
    shape, _, dtype = read(stream)
    promised = math.prod(shape) * dtype.itemsize
    if promised > size and not dtype.hasobject:
        raise ValueError(f"its header promises {promised:,} bytes, and it has {size:,}")
    stream.seek(0)
    array: Array = formats.read_array(stream, allow_pickle=False)
    return array


def _extension_dtype(name: str) -> np.dtype[Any] | None:
    import ml_dtypes

    found = getattr(ml_dtypes, name, None)
    return np.dtype(found) if isinstance(found, type) else None
