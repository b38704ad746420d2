"""What a file is, from its bytes: every format that can be loaded."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from loading_files import (
    Net,
    onnx_model,
    save_old_program,
    save_onnx,
    save_program,
    save_safetensors,
    save_script,
    save_tar,
    save_torch,
)
from torch import nn

from convert.errors import LoadError
from convert.loading.sniff import identify

FORMATS: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "scripted": ("torchscript", lambda path: save_script(path, nn.ReLU())),
    "traced": ("torchscript", lambda path: save_script(path, nn.Linear(2, 2), torch.ones(1, 2), trace=True)),
    "exported": ("exported_program", lambda path: save_program(path, nn.ReLU(), torch.ones(2))),
    "exported, flat layout": ("exported_program", lambda path: save_old_program(path, nn.ReLU(), torch.ones(2))),
    "module": ("module", lambda path: save_torch(path, Net())),
    "state_dict": ("state_dict", lambda path: save_torch(path, Net().state_dict())),
    "plain dict of tensors": ("state_dict", lambda path: save_torch(path, {"w": torch.ones(2)})),
    "checkpoint": ("checkpoint", lambda path: save_torch(path, {"model": Net().state_dict(), "epoch": 3})),
    "checkpoint with a module": ("checkpoint", lambda path: save_torch(path, {"ema": None, "model": Net()})),
    "old module": ("module", lambda path: save_torch(path, Net(), old=True)),
    "old state_dict": ("state_dict", lambda path: save_torch(path, Net().state_dict(), old=True)),
    "old checkpoint": ("checkpoint", lambda path: save_torch(path, {"model": Net().state_dict(), "x": 1}, old=True)),
    "tar": ("checkpoint", save_tar),
    "safetensors": ("safetensors", lambda path: save_safetensors(path, {"w": torch.ones(2, 2)})),
    "onnx": ("onnx", save_onnx),
}


@pytest.mark.parametrize("name", FORMATS)
def test_format_is_found_from_the_bytes_whatever_the_suffix(name: str, tmp_path: Path) -> None:
    expected, make = FORMATS[name]
    path = make(tmp_path / "model.jpg")
    found = identify(path)
    assert found.format == expected
    assert found.sha256 == "sha256:" + hashlib.sha256(path.read_bytes()).hexdigest()
    assert found.bytes == path.stat().st_size


@pytest.mark.parametrize(
    ("name", "container"),
    [
        ("scripted", "zip"),
        ("old module", "pickle"),
        ("tar", "tar"),
        ("safetensors", "safetensors"),
        ("onnx", "protobuf"),
    ],
)
def test_container_is_named(name: str, container: str, tmp_path: Path) -> None:
    assert identify(FORMATS[name][1](tmp_path / "m")).container == container


def test_link_is_followed_and_the_real_file_is_named(tmp_path: Path) -> None:
    real = save_script(tmp_path / "real.pt", nn.ReLU())
    link = tmp_path / "link.pt"
    link.symlink_to(real)
    assert identify(link).path == str(real)


def test_path_with_spaces_and_other_scripts_works(tmp_path: Path) -> None:
    folder = tmp_path / "模型 文件"
    folder.mkdir()
    assert identify(save_script(folder / "é (1).pt", nn.ReLU())).format == "torchscript"


def test_changed_file_is_judged_anew(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", nn.ReLU())
    first = identify(path)
    save_onnx(path, onnx_model())
    os.utime(path, ns=(1, 1))
    assert (first.format, identify(path).format) == ("torchscript", "onnx")


def test_identify_imports_no_library(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", nn.ReLU())
    code = (
        "import sys, pathlib; from convert.loading.sniff import identify; identify(pathlib.Path(sys.argv[1]));"
        "print(sorted({'torch', 'onnx', 'numpy', 'prefect', 'onnxruntime'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_saved_tensor_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match=r"it is a saved tensor \[3\]") as raised:
        identify(save_torch(tmp_path / "t.pt", torch.ones(3)))
    assert raised.value.code == "CNV-3024"


def test_zip_of_torch_without_code_is_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "m.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("m/constants.pkl", b"")
        archive.writestr("m/version", b"3")
    with pytest.raises(LoadError) as raised:
        identify(path)
    assert raised.value.code == "CNV-3007"
