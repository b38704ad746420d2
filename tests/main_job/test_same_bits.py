"""The same model, options and versions give the same bytes, whoever converts it, where and when."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from main_job_kit import Cli, Ended

RECORDS = ("run.json", "report.html", "report.json")
"""Times and facts of the machine, kept apart from what the artifact is."""

RENAMES = (
    os.geteuid() == 0 and not subprocess.run(["unshare", "-u", "true"], capture_output=True, check=False).returncode
)
RENAMED = ["unshare", "-u", "sh", "-c", 'hostname another; exec "$@"', "sh"] if RENAMES else []
MODULE = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

def make():
    torch.manual_seed(5)
    return nn.Sequential(Block(), Block(), nn.Linear(8, 3))
"""


class Renamed(Cli):
    """Commands on a machine of another name, where the rights for that are there."""

    def start(self, module: str, *args: object, **more: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [*RENAMED, sys.executable, "-m", module, *map(str, args)],
            cwd=self.folder,
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )


def someone(folder: Path, seed: int, user: str, zone: str, kind: type[Cli] = Cli) -> Cli:
    """A user with a home, places and an environment of their own."""
    for name in ("home", "tmp", "work"):
        (folder / name).mkdir(parents=True)
    cli = kind(folder)
    cli.environment |= {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "XDG_CACHE_HOME": str(folder / "home" / "cache"),
        "XDG_CONFIG_HOME": str(folder / "home" / "config"),
        "PYTHONHASHSEED": str(seed),
        "USER": user,
        "LOGNAME": user,
        "TZ": zone,
    }
    return cli


def converted(cli: Cli, model: Path, *options: str) -> dict[str, bytes]:
    """The files of the converted model, records of the run aside."""
    shutil.copyfile(model, cli.folder / "work" / model.name)
    ended: Ended = cli.convert(
        cli.folder / "work" / model.name, "--target", "cpu", "--version", "1.0.0", "-q", *options
    )
    assert ended.code == 0, ended.out + ended.err
    pulled = cli.artifacts("pull", f"{model.stem}:1.0.0", "--out", cli.folder / "pulled")
    assert pulled.code == 0, pulled.out + pulled.err
    places = [cli.folder / "pulled", next((cli.folder / "out").rglob("validation.json")).parent]
    found = [path for place in places for path in place.rglob("*") if path.is_file() and path.name not in RECORDS]
    files = {str(path.relative_to(cli.folder)): path.read_bytes() for path in found}
    graphs = [path.read_bytes() for path in (cli.folder / "cache" / "entries").rglob("model.onnx")]
    return files | {f"graph {number}": data for number, data in enumerate(sorted(graphs))}


@pytest.fixture
def module_file(tmp_path: Path) -> Path:
    path = tmp_path / "blocks.py"
    path.write_text(MODULE)
    return path


def same_for_both(tmp_path: Path, model: Path, *options: str) -> None:
    first = converted(someone(tmp_path / "a", 1, "wei", "Asia/Shanghai"), model, *options)
    second = converted(someone(tmp_path / "elsewhere" / "deeper", 2, "anna", "UTC", Renamed), model, *options)
    assert "pulled/manifest.json" in first
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    told = b"".join(first.values())
    assert str(tmp_path).encode() not in told
    assert not any(word in told for word in (b"/tmp/model-convert", b"workers.log"))


@pytest.mark.parametrize("precision", ["int8", pytest.param("fp16", marks=pytest.mark.long)])
def test_an_onnx_file_becomes_the_same_bytes_twice(tmp_path: Path, tiny_onnx: Path, precision: str) -> None:
    same_for_both(tmp_path, tiny_onnx, "--precision", precision)


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "bf16", "mixed"])
def test_other_precisions_become_the_same_bytes_twice(tmp_path: Path, tiny_onnx: Path, precision: str) -> None:
    same_for_both(tmp_path, tiny_onnx, "--precision", precision)


def test_torchscript_becomes_the_same_bytes_twice(tmp_path: Path, tiny_script: Path) -> None:
    same_for_both(tmp_path, tiny_script, "--input", "x:float32[N,3,16,16]", "--exporter", "torchscript")


@pytest.mark.parametrize("exporter", ["dynamo", pytest.param("torchscript", marks=pytest.mark.long)])
def test_a_module_becomes_the_same_bytes_twice(tmp_path: Path, module_file: Path, exporter: str) -> None:
    import torch
    from torch import nn

    torch.manual_seed(5)
    weights = tmp_path / "blocks.pt"
    torch.save(nn.Linear(1, 1).state_dict(), weights)
    scope: dict[str, object] = {}
    exec(compile(MODULE, "blocks", "exec"), scope)
    torch.save(scope["make"]().state_dict(), weights)  # type: ignore[operator]
    options = ("--factory", f"{module_file}:make", "--input", "x:float32[N,8]", "--exporter", exporter)
    first = converted(someone(tmp_path / "a", 1, "wei", "Asia/Shanghai"), weights, *options)
    second = converted(someone(tmp_path / "b" / "c", 2, "anna", "UTC", Renamed), weights, *options)
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert str(tmp_path).encode() not in b"".join(first.values())
