"""Whatever the bytes: ``identify`` answers or raises a LoadError, and nothing else."""

from __future__ import annotations

import pickletools
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from loading_files import (
    Net,
    onnx_model,
    point_outside,
    save_program,
    save_safetensors,
    save_script,
    save_tar,
    save_torch,
)
from torch import nn

from convert.errors import LoadError, UsageError
from convert.loading.inputs import parse_dims, parse_inputs
from convert.loading.pickles import scan_pickle
from convert.loading.sniff import identify

STARTS = (
    b"", b"PK\x03\x04", b"PK\x05\x06" + bytes(18), b"\x80\x02", b"\x80\x04", b"\x08\x08\x12\x07pytorch",
    b"\x08\x01\x12", b"\x0a\x05", (40).to_bytes(8, "little") + b'{"w":', b"<html", b"version https://git-lfs",
    b"\x89HDF\r\n\x1a\n",    b"\x08\x08\x3a\xff\x01\x0a", bytes(257) + b"ustar",
)  # fmt: skip
QUICK = settings(
    max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(scope="module")
def valid_files(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """One small file of each format."""
    folder = tmp_path_factory.mktemp("valid")
    paths = [
        save_script(folder / "a", nn.Linear(2, 2)),
        save_program(folder / "b", nn.ReLU(), torch.ones(2)),
        save_torch(folder / "c", Net()),
        save_torch(folder / "d", {"model": Net().state_dict(), "epoch": 1}, old=True),
        save_tar(folder / "e"),
        save_safetensors(folder / "f", {"w": torch.ones(2)}),
    ]
    (folder / "w").write_bytes(bytes(32))
    return [path.read_bytes() for path in paths] + [
        onnx_model(("N", 4)).SerializeToString(),
        point_outside(onnx_model(), "w").SerializeToString(),
    ]


def answers(data: bytes, folder: Path) -> None:
    path = folder / "model"
    path.write_bytes(data)
    try:
        assert identify(path).bytes == len(data)
    except LoadError as error:
        assert error.code.startswith("CNV-30")
        assert "\n" not in error.message


@QUICK
@given(start=st.sampled_from(STARTS), rest=st.binary(max_size=400))
def test_any_bytes_are_judged_or_refused(start: bytes, rest: bytes, tmp_path: Path) -> None:
    answers(start + rest, tmp_path)


@QUICK
@given(data=st.data())
def test_damaged_files_are_judged_or_refused(data: st.DataObject, valid_files: list[bytes], tmp_path: Path) -> None:
    content = bytearray(data.draw(st.sampled_from(valid_files)))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        end = data.draw(st.sampled_from((at, at + 1, at + 4, len(content))))
        content[at:end] = data.draw(st.binary(max_size=8))
        if not content:
            content = bytearray(b"x")
    answers(bytes(content), tmp_path)


OPCODES = st.sampled_from([opcode.code.encode("latin-1") for opcode in pickletools.opcodes])


@QUICK
@given(code=st.lists(st.one_of(OPCODES, st.binary(max_size=6)), max_size=60))
def test_any_instructions_are_scanned_or_refused(code: list[bytes]) -> None:
    try:
        scan_pickle(b"\x80\x04" + b"".join(code) + b".")
    except ValueError as error:
        assert str(error)


@QUICK
@given(
    value=st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=4), st.floats()),
        lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    )
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_plain_values_import_nothing(value: object, protocol: int) -> None:
    import pickle

    assert scan_pickle(pickle.dumps(value, protocol)).globals == ()


@QUICK
@given(text=st.one_of(st.text(max_size=40), st.from_regex(r"[a-z]:float32\[[N0-9,]{0,8}\](\{.*\})?", fullmatch=True)))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (parse_inputs, parse_dims):
        try:
            parse([text])
        except UsageError as error:
            assert error.code in ("CNV-2011", "CNV-2012")


def test_memory_stays_small_whatever_is_declared(tmp_path: Path) -> None:
    import tracemalloc

    tracemalloc.start()
    for declared in (
        b"\x80\x04\x8e" + b"\xff" * 7 + b"\x7f",
        b"\x80\x02B\xff\xff\xff\x7f",
        (1 << 30).to_bytes(8, "little") + b'{"',
    ):
        answers(declared + bytes(50), tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20 << 20
