"""Archives of arrays that are damaged, locked, or of a kind that Python does not know."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from convert.acceptance.stored import is_kept, unpack_kept
from convert.arrays import load_npz
from convert.commands.diff import diff
from convert.errors import ModelConvertError, UsageError
from convert.loading.samples import read_file

LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


def _with_byte(data: bytes, local: int, central: int, value: int) -> bytes:
    """Set one byte of the only member's two headers, at these distances from their beginnings."""
    changed = bytearray(data)
    changed[data.index(LOCAL) + local] = value
    changed[data.index(CENTRAL) + central] = value
    return bytes(changed)


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "encrypted": lambda data: _with_byte(data, 6, 8, 1),
    "of a later version of zip": lambda data: _with_byte(data, 4, 6, 99),
    "packed by an unknown method": lambda data: _with_byte(data, 8, 10, 99),
    "cut off": lambda data: data[: len(data) // 2],
    "begins before the file": lambda data: data[:4] + data[60:],
    "other bytes than its checksum says": lambda data: data.replace(b"\x01\x02\x03\x04", b"\x01\x02\x03\x05"),
    "not an array": lambda data: data.replace(b"NUMPY", b"NUMPX"),
}


@pytest.fixture(params=DAMAGES, ids=str)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "samples.npz"
    np.savez(path, x=np.frombuffer(b"\x01\x02\x03\x04" * 16, np.uint8))
    whole = path.read_bytes()
    path.write_bytes(DAMAGES[request.param](whole))
    assert path.read_bytes() != whole
    return path


def test_a_damaged_file_of_arrays_is_refused_in_words(damaged: Path) -> None:
    with pytest.raises((ValueError, OSError), match=r"\w"):
        load_npz(damaged)


def test_a_damaged_file_of_samples_is_named(damaged: Path) -> None:
    with pytest.raises(UsageError, match=r"samples\.npz") as refusal:
        read_file(damaged)
    assert refusal.value.code == "CNV-2015"


def test_damaged_kept_samples_are_no_artifact(damaged: Path, tmp_path: Path) -> None:
    assert not is_kept(damaged)
    with pytest.raises(UsageError) as refusal:
        unpack_kept(damaged, tmp_path / "kept")
    assert refusal.value.code == "CNV-2281"


def test_a_damaged_file_of_outputs_is_named(damaged: Path) -> None:
    result = CliRunner().invoke(diff, [str(damaged), str(damaged)])
    assert isinstance(result.exception, ModelConvertError)
    assert "samples.npz" in result.exception.message


def test_locked_kept_samples_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "samples.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("samples/000.npz", b"1")
        archive.writestr("reference/000.npz", b"2")
    assert is_kept(path)
    locked = path.read_bytes().replace(LOCAL + b"\x14\x00\x00", LOCAL + b"\x14\x00\x01")
    path.write_bytes(locked.replace(CENTRAL + b"\x14\x03\x14\x00\x00", CENTRAL + b"\x14\x03\x14\x00\x01"))
    with pytest.raises(UsageError) as refusal:
        unpack_kept(path, tmp_path / "kept")
    assert refusal.value.code == "CNV-2281"
