"""Bundles from strangers: every one that is not right ends in a clear error, and nothing is written outside."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from handoff_kit import pack, reseal

from artifacts.digest import FileEntry
from convert.errors import UsageError
from convert.handoff.archive import open_bundle
from convert.handoff.bundle import Bundle, is_safe, place_of
from convert.request import Conversion

MUTATIONS = 300


@pytest.fixture
def archive(handed: Conversion) -> Path:
    assert handed.targets[0].handoff is not None
    return Path(handed.targets[0].handoff["path"])


def refusal_of(place: Path, folder: Path) -> str:
    """The code with which a bundle is refused."""
    with pytest.raises(UsageError) as refusal:
        open_bundle(place, folder / "ours")
    assert refusal.value.hint
    return refusal.value.code


def plus(archive: Path, folder: Path, *added: tarfile.TarInfo, data: bytes = b"") -> Path:
    """The archive with members appended."""
    path = folder / "plus.tar"
    shutil.copyfile(archive, path)
    with tarfile.open(path, "a") as tar:
        for member in added:
            member.size = len(data) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(data) if member.isreg() else None)
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    one = tarfile.TarInfo(name)
    one.type, one.linkname = kind, link
    return one


TOP = "mlp-Ascend910B.handoff"
HOSTILE = {
    "a path upwards": member(f"{TOP}/../../escaped"),
    "an absolute path": member("/tmp/escaped"),
    "a link out": member(f"{TOP}/out/model.om", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": member(f"{TOP}/out/model.om", tarfile.LNKTYPE, f"{TOP}/bundle.json"),
    "a device": member(f"{TOP}/out/model.om", tarfile.CHRTYPE),
    "a pipe": member(f"{TOP}/out/model.om", tarfile.FIFOTYPE),
    "a file twice": member(f"{TOP}/model/model.onnx"),
    "a second folder": member("other/out/model.om"),
    "an escape sequence in a name": member(f"{TOP}/out/\x1b[31m.om"),
    "a folder upwards": member(f"{TOP}/../..", tarfile.DIRTYPE),
}


@pytest.mark.parametrize("added", HOSTILE.values(), ids=HOSTILE.keys())
def test_what_a_bundle_never_holds_is_refused(archive: Path, tmp_path: Path, added: tarfile.TarInfo) -> None:
    assert refusal_of(plus(archive, tmp_path, added), tmp_path) == "CNV-2303"
    assert not (tmp_path.parent / "escaped").exists()
    assert not (tmp_path / "ours").exists()


def test_links_in_a_folder_are_refused(bundle: Path, tmp_path: Path) -> None:
    (bundle / "out" / "model.om").symlink_to("/etc/passwd")
    assert refusal_of(bundle, tmp_path) == "CNV-2303"


@pytest.mark.parametrize(
    "content",
    [b"", b"no tar at all", b"\x1f\x8b" + b"0" * 600, b"0" * 10_240],
    ids=["empty", "text", "gzip", "noise"],
)
def test_other_files_are_told_apart(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(content)
    assert refusal_of(path, tmp_path) == "CNV-2301"
    assert refusal_of(tmp_path / "nowhere.tar", tmp_path) == "CNV-2301"
    assert refusal_of(tmp_path, tmp_path) == "CNV-2301"


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refusal_of(tmp_path / "pipe", tmp_path) == "CNV-2301"


def test_a_header_that_asks_for_gigabytes_costs_nothing(archive: Path, tmp_path: Path) -> None:
    path = tmp_path / "big.tar"
    header = tarfile.TarInfo("././@PaxHeader")
    header.type, header.size = tarfile.XHDTYPE, 6 << 30
    path.write_bytes(header.tobuf(tarfile.GNU_FORMAT) + archive.read_bytes())
    assert refusal_of(path, tmp_path) == "CNV-2301"


@pytest.mark.parametrize("name", ["model/model.onnx", "compile.sh", "samples/000.npz"])
def test_a_file_that_changed_or_is_gone_is_named(bundle: Path, tmp_path: Path, name: str) -> None:
    content = bytearray((bundle / name).read_bytes())
    content[len(content) // 2] ^= 1
    (bundle / name).write_bytes(content)
    with pytest.raises(UsageError) as refusal:
        open_bundle(bundle, tmp_path / "ours")
    assert (refusal.value.code, name in refusal.value.message) == ("CNV-2304", True)
    (bundle / name).unlink()
    assert refusal_of(pack(bundle, tmp_path / "x.tar"), tmp_path / "more") == "CNV-2304"


def test_what_was_brought_is_taken_and_what_else_lies_there_is_not(bundle: Path, tmp_path: Path) -> None:
    for name in ("out/model.om", "out/extra.bin", "measured/000.npz", "compile.log", "notes.txt", "verify.pyc"):
        (bundle / name).write_bytes(b"x")
    for place in (bundle, pack(bundle, tmp_path / "x.tar"), bundle.parent / "up"):
        if place.name == "up":
            place.mkdir()
            shutil.copytree(bundle, place / bundle.name)
        opened = open_bundle(place, tmp_path / place.name.replace(".", "") / "ours")
        assert set(opened.brought) == {"out/model.om", "out/extra.bin", "measured/000.npz", "compile.log"}
        assert not opened.path("notes.txt").exists()


def forged(bundle: Path) -> dict[str, Callable[[Bundle], dict[str, object]]]:
    change = msgspec.structs.replace
    return {
        "a name with a path": lambda b: {"name": "../../etc"},
        "no version": lambda b: {"version": "latest"},
        "an unknown target": lambda b: {"target": "Ascend911"},
        "another backend": lambda b: {"plan": change(b.plan, backend="onnxruntime")},
        "an output with a path": lambda b: {"plan": change(b.plan, output="../model.om")},
        "another graph": lambda b: {"graph": change(b.graph, opset=11)},
        "a chain from nowhere": lambda b: {"chain": b.chain[2:]},
        "more samples than files": lambda b: {"graph": change(b.graph, sample_count=10**9)},
        "a file outside": lambda b: {"files": (*b.files, FileEntry(name="../x", sha256=b.model.sha256, bytes=1))},
        "a file without a digest": lambda b: {"files": (*b.files, FileEntry(name="x", sha256="md5:1", bytes=1))},
        "a SoC for a shell": lambda b: {"members": ("Ascend910B1; touch oops",)},
        "a newer schema": lambda b: {"schema": 2},
        "a forecast of another graph": lambda b: {
            "forecast": b.forecast and change(b.forecast, parent="sha256:" + "0" * 64)
        },
    }


@pytest.mark.parametrize("kind", list(forged(Path())))
def test_a_forged_document_is_refused_although_its_digest_is_right(bundle: Path, tmp_path: Path, kind: str) -> None:
    document = msgspec.json.decode((bundle / "bundle.json").read_bytes(), type=Bundle)
    reseal(bundle, **forged(bundle)[kind](document))
    assert refusal_of(bundle, tmp_path) == "CNV-2302"


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", '{"schema": 1}', "[" * 100_000, '{"schema": 1, "schema": 1}', "\xff"]
)
def test_a_document_that_is_none_is_refused(bundle: Path, tmp_path: Path, text: str) -> None:
    (bundle / "bundle.json").write_bytes(text.encode("latin-1"))
    assert refusal_of(bundle, tmp_path) == "CNV-2302"


def test_every_edit_of_the_document_is_noticed(bundle: Path, tmp_path: Path) -> None:
    path = bundle / "bundle.json"
    document = json.loads(path.read_text())
    document["gate"] = {"cosine": 0.1}
    path.write_text(json.dumps(document))
    assert refusal_of(bundle, tmp_path) == "CNV-2302"


def test_mutated_archives_end_in_clear_errors_and_leave_nothing_behind(archive: Path, tmp_path: Path) -> None:
    content, codes = archive.read_bytes(), set()
    rng = random.Random(20_261)
    path = tmp_path / "mutated.tar"
    outside = sorted(tmp_path.parent.iterdir())
    for number in range(MUTATIONS):
        path.write_bytes(mutated(content, rng))
        folder = tmp_path / str(number)
        try:
            open_bundle(path, folder)
        except UsageError as refusal:
            codes.add(refusal.code)
        shutil.rmtree(folder, ignore_errors=True)
    assert codes <= {"CNV-2301", "CNV-2302", "CNV-2303", "CNV-2304"}
    assert len(codes) >= 3
    assert sorted(tmp_path.parent.iterdir()) == outside


def mutated(content: bytes, rng: random.Random) -> bytes:
    """One to four faults of a carrier or an attacker: flipped bytes, cuts, repeats, zeroed and swapped blocks."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        start = rng.randrange(len(data))
        length = rng.choice((1, 8, 512, 4096))
        kind = rng.choice(("flip", "header", "cut", "repeat", "zero", "truncate"))
        if kind == "flip":
            data[start] = rng.randrange(256)
        elif kind == "header":
            block = 512 * rng.randrange(max(1, len(data) // 512))
            data[min(block + rng.randrange(257), len(data) - 1)] = rng.randrange(256)
        elif kind == "cut":
            del data[start : start + length]
        elif kind == "repeat":
            data[start:start] = data[start : start + length]
        elif kind == "zero":
            data[start : start + length] = bytes(len(data[start : start + length]))
        elif rng.random() < 0.3:
            del data[start:]
        data = data or bytearray(1)
    return bytes(data)


@pytest.mark.parametrize(
    ("name", "safe"),
    [("a", True), ("a/b.npz", True), ("", False), ("/a", False), ("a//b", False), ("../a", False), ("a/../b", False),
     ("./a", False), ("a\\b", False), ("a\nb", False), ("x" * 300, False)],
)  # fmt: skip
def test_names_that_leave_the_folder_are_not_safe(name: str, safe: bool) -> None:
    assert is_safe(name) is safe


def test_files_of_a_graph_have_their_place_in_the_bundle() -> None:
    assert place_of("model.onnx") == "model/model.onnx"
    assert place_of("reference/003.npz") == "samples/003.reference.npz"
    assert place_of("calibration/000.npz") == "calibration/000.npz"
