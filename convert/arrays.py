"""Named arrays on disk: ``.npz`` files of samples and outputs, extension dtypes (bfloat16, float8, int4) included.

numpy stores an extension dtype as raw bytes and forgets what it was. Such an array is stored as unsigned integers
under ``NAME@DTYPE``, and read back as what it was. Objects (pickles) are never read.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

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
    with path.open("rb") as stream, np.load(stream, allow_pickle=False) as stored:
        for key in stored.files:
            name, mark, dtype = key.rpartition(MARK)
            extension = _extension_dtype(dtype) if mark else None
            if extension is None:
                arrays[key] = stored[key]
            else:
                arrays[name] = stored[key].view(extension)
    return arrays


def _extension_dtype(name: str) -> np.dtype[Any] | None:
    import ml_dtypes

    found = getattr(ml_dtypes, name, None)
    return np.dtype(found) if isinstance(found, type) else None
