"""What a pickle would import, found without running it."""

from __future__ import annotations

import collections
import pickle
from pathlib import Path

import pytest
import torch
from loading_files import Evil, Net, save_tar, save_torch

from convert.errors import LoadError
from convert.loading.pickles import globals_of, scan_legacy, scan_pickle


@pytest.mark.parametrize("old", [False, True], ids=["zip", "before 1.6"])
def test_hostile_pickle_is_named_and_never_runs(old: bool, tmp_path: Path) -> None:
    path = save_torch(tmp_path / "m.pt", {"w": torch.ones(2), "x": Evil(tmp_path / "PWNED")}, old=old)
    assert "io.open" in globals_of(path)
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize("protocol", range(6))
def test_globals_of_every_protocol_are_found(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "m.pkl"
    path.write_bytes(pickle.dumps([Path("a"), collections.Counter("ab")], protocol))
    found = globals_of(path)
    assert "collections.Counter" in found
    assert any(name.endswith("PosixPath") for name in found)


def test_plain_pickle_with_persistent_ids_is_read(tmp_path: Path) -> None:
    class Pickler(pickle.Pickler):
        def persistent_id(self, obj: object) -> object:
            return ("storage", [1, (2, None)]) if obj == "big" else None

    path = tmp_path / "m.pkl"
    with path.open("wb") as stream:
        Pickler(stream).dump({"a": "big", "b": ["big", Path("x")]})
    assert globals_of(path) == ("pathlib.PosixPath",)


def test_tar_of_the_first_versions_is_read(tmp_path: Path) -> None:
    assert globals_of(save_tar(tmp_path / "m.tar")) == ()


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (b"cos\nsystem\n(X\x02\x00\x00\x00idtR.", "os.system"),
        (b"\x80\x04\x8c\x02os\x8c\x06system\x93.", "os.system"),
        (b"\x80\x04\x8c\x02os\x94\x8c\x06system\x94h\x00h\x01\x93.", "os.system"),
        (b"(S'id'\nios\nsystem\n.", "os.system"),
        (b"(cos\nsystem\nX\x02\x00\x00\x00ido.", "os.system"),
        (b"\x80\x02\x82\x01.", "copyreg extension.1"),
        (b"\x80\x04N\x8c\x06system\x93.", "a name computed by the pickle"),
    ],
    ids=["global", "stack", "stack from memo", "inst", "obj", "extension", "computed"],
)
def test_every_way_to_name_a_global_is_seen(code: bytes, name: str) -> None:
    assert name in scan_pickle(code).globals


@pytest.mark.parametrize(
    "code",
    [
        b"\x80\x02.",
        b"\x80\x02R.",
        b"\x80\x02h\x07.",
        b"\x80\x02t.",
        b"\x80\x02X\xff\xff\xff\x7fabc.",
        b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc.",
        b"\x80\x02\x8b\xff\xff\xff\x7fa.",
        b"\x80\x02\x89",
        b"\xff",
        b"",
        b"c" + b"a" * 5000,
    ],
)
def test_damaged_pickle_is_an_error_and_allocates_nothing(code: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        scan_pickle(code)


def test_deep_nesting_costs_no_stack() -> None:
    assert scan_pickle(b"\x80\x02" + b"]" * 200_000 + b"a" * 199_999 + b".").kind == "other"
    assert scan_pickle(b"\x80\x02N" + b"\x85" * 200_000 + b".").kind == "other"


def test_damaged_pickle_in_an_archive_is_a_load_error(tmp_path: Path) -> None:
    path = tmp_path / "m.pkl"
    path.write_bytes(b"\x80\x02X\xff\xff\xff\x7f")
    with pytest.raises(LoadError) as raised:
        globals_of(path)
    assert raised.value.code == "CNV-3021"


def test_what_is_held_is_told_apart(tmp_path: Path) -> None:
    path = save_torch(
        tmp_path / "m.pt", {"epoch": 3, "model": Net(), "opt": {"lr": 0.1}, "w": torch.ones(2, 3)}, old=True
    )
    scan = scan_legacy(path, path.stat().st_size)
    assert scan.magic
    assert dict(scan.entries) == {
        "epoch": "int",
        "model": "module loading_files.Net",
        "opt": "dict of 1",
        "w": "tensor [2, 3]",
    }
    assert scan.unsafe[0] == "loading_files.Net"
