"""An exported program runs no code of its own while it is opened: hostile ones are refused unopened."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import torch
from loading_files import Evil, Net, edit_json, rezip, save_old_program, save_program

from convert.errors import LoadError
from convert.loading.program_vetting import is_arithmetic, is_guard
from convert.loading.sniff import identify
from convert.loading.torch_models import open_file
from convert.values import LoadOptions


def refusal(path: Path) -> LoadError:
    with pytest.raises(LoadError) as raised:
        open_file(identify(path), LoadOptions(path=str(path)))
    return raised.value


def dynamic_program(path: Path) -> Path:
    return save_program(
        path, Net().eval(), torch.randn(3, 4), dynamic_shapes=({0: torch.export.Dim("N", min=2, max=9)},)
    )


def evil_bytes(path: Path) -> bytes:
    buffer = io.BytesIO()
    torch.save((Evil(path),), buffer)
    return buffer.getvalue()


def test_what_torch_writes_passes(tmp_path: Path) -> None:
    path = dynamic_program(tmp_path / "m.pt2")
    assert open_file(identify(path), LoadOptions(path=str(path))).program is not None


@pytest.mark.parametrize(
    "member", ["data/sample_inputs/model.pt", "data/weights/weight_0", "data/constants/opaque_obj_0"]
)
def test_pickle_in_a_part_is_named_and_never_runs(member: str, tmp_path: Path) -> None:
    path = dynamic_program(tmp_path / "m.pt2")
    data = evil_bytes(tmp_path / "PWNED")
    rezip(path, lambda name, old: None if name == member else old, {member: data})
    error = refusal(path)
    assert (error.code, "io.open" in error.message) == ("CNV-3036", True)
    assert not (tmp_path / "PWNED").exists()


def test_pickled_weights_that_torch_would_unpickle_as_code_never_run(tmp_path: Path) -> None:
    path = dynamic_program(tmp_path / "m.pt2")

    def use_pickle(document: Any) -> None:
        for entry in document["config"].values():
            entry["use_pickle"] = True

    edit_json(path, "data/weights/model_weights_config.json", use_pickle)
    rezip(path, lambda name, old: evil_bytes(tmp_path / "PWNED") if "weight_" in name and "." not in name else old)
    assert refusal(path).code == "CNV-3036"
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize(
    "member", ["serialized_state_dict.pt", "serialized_constants.pt", "serialized_example_inputs.pt"]
)
def test_pickle_in_the_flat_layout_never_runs(member: str, tmp_path: Path) -> None:
    path = save_old_program(tmp_path / "m.pt2", Net().eval(), torch.randn(3, 4))
    import zipfile

    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[member] = evil_bytes(tmp_path / "PWNED")
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    assert refusal(path).code == "CNV-3036"
    assert not (tmp_path / "PWNED").exists()


def replace(document: Any, key: str, value: Any) -> None:
    stack = [document]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            if isinstance(item.get(key), type(value)):
                item[key] = value
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("expr_str", "__import__('os').system('touch PWNED')", "no arithmetic"),
        ("expr_str", "().__class__", "no arithmetic"),
        ("guards_code", ["__import__('os').system('touch PWNED') == 0"], "more than a comparison"),
        ("target", "torch.hub.load", "a call of 'torch.hub.load'"),
        ("target", "torch.ops.load_library", "a call of"),
        ("target", "torch.ops.aten.from_file.default", "files"),
        ("target", "_operator.methodcaller", "a call of"),
        ("target", "torch.ops.aten.add.__globals__", "a call of"),
    ],
)
def test_code_in_the_program_is_refused(
    key: str, value: Any, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = edit_json(
        dynamic_program(tmp_path / "m.pt2"), "models/model.json", lambda document: replace(document, key, value)
    )
    error = refusal(path)
    assert error.code == "CNV-3037"
    assert what in error.message
    assert not (tmp_path / "PWNED").exists()


def test_compiled_libraries_beside_a_program_are_refused(tmp_path: Path) -> None:
    path = rezip(
        dynamic_program(tmp_path / "m.pt2"), lambda _, old: old, {"data/aotinductor/model/evil.so": b"\x7fELF"}
    )
    assert refusal(path).code == "CNV-3037"


def test_broken_json_is_damage(tmp_path: Path) -> None:
    path = rezip(
        dynamic_program(tmp_path / "m.pt2"), lambda name, old: old[:50] if name.endswith("model.json") else old
    )
    error = refusal(path)
    assert error.code == "CNV-3028"
    assert "models/model.json can't be read" in error.message


@pytest.mark.parametrize(
    "text",
    [
        "s77",
        "2*s0 + 1",
        "Symbol('s17', positive=True, integer=True)",
        "Max(1, s0//2)",
        "Eq(Mod(s0, 2), 0)",
        "-(s1**2)",
        "s0 >= 3",
    ],
)
def test_symbolic_sizes_are_arithmetic(text: str) -> None:
    assert is_arithmetic(text)


@pytest.mark.parametrize(
    "text",
    [
        "eval('1')",
        "S('__import__(0)')",
        "(lambda: 1)()",
        "s0.__class__",
        "[1][0]",
        "exit()",
        "9**9**9",
        "2**1000",
        "",
        "1 +",
        "x" * 30000,
    ],
)
def test_code_is_no_arithmetic(text: str) -> None:
    assert not is_arithmetic(text)


def test_guards_compare_sizes_only() -> None:
    assert is_guard("L['x'].size()[0] == L['feats']['a'].size()[0]")
    assert is_guard("2 <= L['x'].size()[0] and L['x'].size()[0] <= 16")
    assert not is_guard("exec('1') == 0")
    assert not is_guard("L['x']._backward_hooks == 1")
    assert not is_guard("[x for x in ()] == 1")
