"""What a release is made of: the wheel, its bill of materials, man pages, completion."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from pages import ROOT

from artifacts.__main__ import COMMANDS as ARTIFACTS_COMMANDS
from convert.__main__ import COMMANDS as CONVERT_COMMANDS

SCRIPTS = ROOT / "scripts"


def run(*words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(word) for word in words], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def build(out: Path, *, umask: str = "022", **environment: str) -> Path:
    line = f"umask {umask}; exec {SCRIPTS / 'build-wheel'} {out}"
    ended = run("sh", "-c", line, PYTHON=sys.executable, **environment)
    assert ended.returncode == 0, ended.stderr
    (wheel,) = out.glob("*.whl")
    assert ended.stdout.split() == [hashlib.sha256(wheel.read_bytes()).hexdigest(), wheel.name]
    return wheel


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not (ROOT / ".git").exists():
        pytest.skip("a wheel is built from a commit, and this is no checkout")
    return build(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def site(wheel: Path, tmp_path: Path) -> Path:
    """The wheel as an installer unpacks it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    return tmp_path / "site"


def test_a_wheel_built_twice_has_the_same_bytes(wheel: Path, tmp_path: Path) -> None:
    again = build(tmp_path / "a", umask="077", TZ="Asia/Shanghai", LC_ALL="C", PYTHONHASHSEED="7")
    assert again.read_bytes() == wheel.read_bytes()


def test_a_wheel_has_the_packages_with_their_data_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} - {"artifacts", "convert", "flows", "op_registry"} == {
        next(name for name in names if name.endswith(".dist-info/RECORD")).partition("/")[0]
    }
    needed = {"convert/explain/CNV-1001.md", "op_registry/data/ascend/targets.csv", "convert/backends/atc/flags.toml"}
    assert needed <= set(names)
    assert not [name for name in names if name.endswith(".pyc") or "/tests/" in name]


def test_the_bill_of_materials_names_all_that_is_needed_and_how(site: Path) -> None:
    ended = run(sys.executable, SCRIPTS / "sbom", PYTHONPATH=str(site), SOURCE_DATE_EPOCH="1700000000")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    assert told["metadata"]["timestamp"] == "2023-11-14T22:13:20Z"
    root = told["metadata"]["component"]
    assert (root["name"], root["licenses"]) == ("model-convert", [{"expression": "Apache-2.0"}])
    refs = [root["bom-ref"], *(part["bom-ref"] for part in told["components"])]
    assert len(refs) == len(set(refs))
    assert all(re.fullmatch(r"pkg:pypi/[a-z0-9-]+@\S+", ref) for ref in refs)
    needs = {one["ref"]: one["dependsOn"] for one in told["dependencies"]}
    assert set(needs) == set(refs)
    assert {need for found in needs.values() for need in found} == set(refs) - {root["bom-ref"]}
    direct = {ref.partition("@")[0].rpartition("/")[2] for ref in needs[root["bom-ref"]]}
    assert direct == {"click", "cryptography", "httpx", "msgspec", "rich"}


def test_an_extra_adds_to_the_bill_and_what_is_missing_is_an_error(site: Path, tmp_path: Path) -> None:
    more = run(sys.executable, SCRIPTS / "sbom", "--extra", "convert", PYTHONPATH=str(site))
    assert {"torch", "onnx"} <= {part["name"] for part in json.loads(more.stdout)["components"]}
    (metadata,) = site.glob("*.dist-info/METADATA")
    metadata.write_text(metadata.read_text().replace("Requires-Dist: click>", "Requires-Dist: no-such-thing-here>"))
    lacking = run(sys.executable, SCRIPTS / "sbom", PYTHONPATH=str(site))
    assert (lacking.returncode, lacking.stdout) == (1, "")
    assert lacking.stderr == "error: not installed here: no-such-thing-here\n"


@pytest.fixture(scope="module")
def manuals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man1")
    ended = run(sys.executable, SCRIPTS / "man-page", folder)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.mark.parametrize(("program", "names"), [("convert", CONVERT_COMMANDS), ("artifacts", ARTIFACTS_COMMANDS)])
def test_a_man_page_tells_of_every_command(manuals: Path, program: str, names: dict[str, object]) -> None:
    text = (manuals / f"{program}.1").read_text(encoding="utf-8")
    assert {f".SS {program} {name}" for name in names} <= set(text.splitlines())
    if program == "convert":
        assert ".SS convert graph lower" in text
        assert "\\-\\-toolchain\\-version V" in text


@pytest.mark.skipif(shutil.which("groff") is None, reason="groff is not installed")
@pytest.mark.parametrize("program", ["convert", "artifacts"])
def test_a_man_page_is_set_without_a_warning(manuals: Path, program: str) -> None:
    ended = run("groff", "-man", "-Tutf8", "-ww", "-z", manuals / f"{program}.1")
    assert (ended.returncode, ended.stderr) == (0, "")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize("program", ["convert", "artifacts"])
def test_the_programs_write_their_completion(program: str, shell: str) -> None:
    complete = f"_{program.upper()}_COMPLETE"
    ended = run(sys.executable, "-m", program, PYTHONPATH=str(ROOT), **{complete: f"{shell}_source"})
    assert ended.returncode == 0
    assert f"{complete}={shell}_complete" in ended.stdout
    assert re.search(rf"complet|compdef.* {program}", ended.stdout)


@pytest.mark.parametrize(
    ("line", "place", "offered"),
    [
        ("convert fo", "1", ["forecast"]),
        ("convert graph lo", "2", ["lower"]),
        ("convert check model.pt --tar", "3", ["--target"]),
        ("convert model.pt --precision b", "3", ["bf16"]),
        ("convert model.pt --toolchain", "2", ["--toolchain-version"]),
    ],
)
def test_completion_offers_commands_options_and_values(line: str, place: str, offered: list[str]) -> None:
    told = {"_CONVERT_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": place, "PYTHONPATH": str(ROOT)}
    ended = run(sys.executable, "-m", "convert", **told)
    assert [row.partition(",")[2] for row in ended.stdout.splitlines()] == offered


def audit(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, SCRIPTS / "audit", *words)


def test_no_pinned_version_has_a_known_weakness() -> None:
    ended = audit()
    assert ended.returncode == 0, ended.stdout
    assert re.fullmatch(r"\d+ versions, none of which the list of \d{4}-\d\d-\d\d knows a weakness of\n", ended.stdout)


def test_no_oldest_version_that_the_project_allows_has_a_known_weakness(tmp_path: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = [project["build-system"]["requires"], project["project"]["dependencies"]]
    groups += project["project"]["optional-dependencies"].values()
    oldest = {match for group in groups for line in group if (match := re.match(r"[\w.-]+>=[\d.]+", line))}
    pins = tmp_path / "oldest.txt"
    pins.write_text("\n".join(sorted(match[0].replace(">=", "==") for match in oldest)) + "\n")
    assert "onnx==" in pins.read_text()
    ended = audit("--constraints", pins)
    assert ended.returncode == 0, ended.stdout


def test_a_weak_version_and_a_loose_pin_are_told_with_their_source(tmp_path: Path) -> None:
    pins = tmp_path / "pins.txt"
    pins.write_text("onnx==1.20.0\nJinja2==3.1.6\ntorch>=2\nprotobuf==6.30.2  # of the 6 line\n")
    ended = audit("--constraints", pins)
    told = ended.stdout.splitlines()
    assert ended.returncode == 1
    assert told[0] == "not pinned to one version: torch>=2"
    assert {line.partition(" ")[0] for line in told[1:]} == {"onnx", "protobuf"}
    assert all(
        re.search(r" 1\.20\.0: .+| 6\.30\.2: .+", line) and "nvd.nist.gov/vuln/detail/CVE-" in line for line in told[1:]
    )


def test_the_list_of_weaknesses_is_whole_and_in_order() -> None:
    lines = (SCRIPTS / "advisories.csv").read_text(encoding="utf-8").splitlines()
    rows = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    assert len(rows) > 50
    assert [row["package"] for row in rows] == sorted(row["package"] for row in rows)
    assert all(re.fullmatch(r"CVE-\d{4}-\d{4,}", row["id"]) and row["what"] and row["affected"] for row in rows)
    assert {"onnx", "torch", "protobuf", "prefect", "cryptography", "jinja2", "starlette", "h11", "httpx"} <= {
        row["package"] for row in rows
    }
