"""Finding the SDK's Python, MagicMind's version and the card; and the script by itself."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from magicmind_kit import BACKEND, DOUBLES, script

from artifacts.runner import Finished
from convert.backends.base import Missing, Toolchain
from convert.backends.magicmind import child_job
from convert.backends.magicmind.outcome import failure_of, notes_of
from convert.backends.magicmind.versions import ASSUMED, level_of
from op_registry.targets import find_target

X4 = find_target("MLU370-X4")


def probe(**more: str) -> Toolchain | Missing:
    return BACKEND.probe(X4, {**os.environ, **more})


def test_the_sdk_is_found_with_its_versions_and_the_card(sdk) -> None:
    home = sdk("1.6.0")
    (home / "lib64").mkdir()
    (home / "lib64" / "libcnnl.so.1.21.1").touch()
    found = probe()
    assert isinstance(found, Toolchain)
    assert (found.name, found.version) == ("MagicMind", "1.6.0")
    assert found.details == {
        "program": "python3",
        "python": ".".join(map(str, sys.version_info[:3])),
        "cntoolkit": "3.7.2",
        "cnnl": "1.21.1",
        "card": "MLU370-X4",
        "driver": "5.10.22",
    }


def test_a_card_is_not_needed_and_a_hidden_or_another_one_is_none(sdk, monkeypatch: pytest.MonkeyPatch) -> None:
    sdk(card="")
    assert "card" not in probe().details
    sdk()
    assert "card" not in probe(MLU_VISIBLE_DEVICES="").details
    assert "card" not in BACKEND.probe(find_target("MLU590"), dict(os.environ)).details


def test_the_python_that_is_named_goes_before_others(sdk, tmp_path: Path) -> None:
    sdk(module=False)
    home = sdk("1.5.0")
    named = tmp_path / "sdk-python"
    (home / "python" / "python3").rename(named)
    script(home / "python" / "python3", "exit 1")
    assert isinstance(probe(), Missing)
    found = probe(CONVERT_MAGICMIND_PYTHON=str(named))
    assert (found.version, found.details["program"]) == ("1.5.0", str(named))


def test_what_is_missing_is_said(sdk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home = sdk(module=False)
    found = probe()
    assert isinstance(found, Missing) and f"Neuware is in {home}" in found.reason
    assert "No module named 'magicmind'" in found.reason and "CONVERT_MAGICMIND_PYTHON" in found.hint
    monkeypatch.setenv("NEUWARE_HOME", str(tmp_path / "nowhere"))
    assert "python3 can't import magicmind" in probe().reason
    named = probe(CONVERT_MAGICMIND_PYTHON="/nowhere/python3")
    assert isinstance(named, Missing) and "/nowhere/python3, which CONVERT_MAGICMIND_PYTHON names" in named.reason


def test_a_version_is_told_by_the_librarys_name_where_the_package_tells_none(sdk) -> None:
    home = sdk("1.4.0")
    for path in (home / "site").glob("*.dist-info"):
        (path / "METADATA").unlink()
        path.rmdir()
    found = probe()
    assert (found.version, "version_told_by" in found.details) == (ASSUMED, True)
    (home / "lib64").mkdir()
    for name in ("libmagicmind.so", "libmagicmind.so.1", "libmagicmind.so.1.4.0"):
        (home / "lib64" / name).touch()
    assert probe().version == "1.4.0"


@pytest.mark.parametrize(
    ("text", "level"), [("0.13.0", (0, 13)), ("1.7.0-1", (1, 7)), ("1.10", (1, 10)), ("next", (1, 7)), ("", (1, 7))]
)
def test_a_release_is_two_numbers(text: str, level: tuple[int, int]) -> None:
    assert level_of(text) == level


# ------------------------------------------------------------------------------------------------------- the script


def test_the_script_is_python_3_7_and_imports_the_standard_library_numpy_and_magicmind_only() -> None:
    source = Path(child_job.__file__).read_text()
    tree = ast.parse(source, feature_version=(3, 7))
    names = {
        alias.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    assert names <= {*sys.stdlib_module_names, "numpy"}


def run_script(folder: Path, python: str, *words: str, **environment: str) -> tuple[int, str]:
    (folder / "magicmind_job.py").write_text(Path(child_job.__file__).read_text())
    done = subprocess.run(
        [python, "magicmind_job.py", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_python_without_the_package_starts_the_one_that_is_named(sdk, tmp_path: Path) -> None:
    home = sdk()
    code, said = run_script(tmp_path, sys.executable, "ask", CONVERT_MAGICMIND_PYTHON="/nowhere")
    assert (code, "no module" in said) == (86, True)
    python = str(home / "python" / "python3")
    code, said = run_script(tmp_path, sys.executable, "ask", CONVERT_MAGICMIND_PYTHON=python)
    assert (code, "magicmind_job: magicmind 1.7.0" in said) == (0, True)


def test_neuwares_libraries_are_put_on_the_loaders_path_where_they_lack(sdk, tmp_path: Path) -> None:
    home = sdk()
    package = tmp_path / "stub" / "magicmind" / "python" / "runtime"
    package.mkdir(parents=True)
    lacking = "libmagicmind_runtime.so.1: cannot open shared object file: No such file or directory"
    (package / "__init__.py").write_text(
        f"import os\nif 'lib64' not in os.environ.get('LD_LIBRARY_PATH', ''):\n    raise ImportError({lacking!r})\n"
    )
    (package / "parser.py").write_text("")
    for folder in (package.parent, package.parent.parent):
        (folder / "__init__.py").write_text("")
    where = {"PYTHONPATH": str(tmp_path / "stub"), "LD_LIBRARY_PATH": "", "NEUWARE_HOME": str(home)}
    code, said = run_script(tmp_path, sys.executable, "ask", **where)
    assert (code, "magicmind_job: python" in said) == (0, True)


def finished(code: int) -> Finished:
    return Finished(argv=("python3",), returncode=code, timed_out=False, seconds=1.0, log="", log_bytes=0)


@pytest.mark.parametrize(
    ("code", "log", "words"),
    [
        (0, 'magicmind_job: done {"version": "1.7.0"}\n', ""),
        (0, "magicmind_job: calibrating on 2 samples\n", "without its closing line"),
        (1, "magicmind_job: failed: parsing model: Internal\n", "parsing model: Internal"),
        (1, "", "exit code 1"),
        (86, "", "can't import magicmind"),
        (134, "", "signal 6"),
        (-9, "", "signal 9"),
    ],
)
def test_a_job_is_judged_by_its_exit_code_and_its_closing_line(code: int, log: str, words: str) -> None:
    told = failure_of(finished(code), log)
    assert (words in told) if words else told == ""


def test_a_retry_is_told_by_the_log() -> None:
    log = 'magicmind_job: the builder gave no model; trying again with {"debug_config": {"fusion_enable": false}}\n'
    assert "fusion off costs speed" in notes_of(log + "magicmind_job: done {}\n")[0].text


# -------------------------------------------------------------------------------------------------------- to elsewhere


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_a_bundle_is_compiled_and_measured_elsewhere_and_published_as_a_device(
    sdk, convert, tmp_path: Path, capsys, monkeypatch, precision: str
) -> None:
    from artifacts.cli import run_boundary
    from convert.__main__ import cli

    monkeypatch.setenv("NEUWARE_HOME", str(tmp_path / "nowhere"))
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(4).normal(size=(2, 8)).astype(np.float32))
    given = ("--calibration", tmp_path / "x.npz", "--gate", "rel_l2=0.2") if precision == "int8" else ()
    code, told = convert("--precision", precision, *given)
    assert (code, told["targets"][0]["status"]) == (6, "handoff")
    handoff = told["targets"][0]["handoff"]
    wanted = {"toolchain": "MagicMind", "version": "1.7.0", "arch": "mtp_372", "clusters": "8"}
    assert wanted.items() <= handoff["needs"].items()
    assert (handoff["needs"].get("calibration") == "a card") is (precision == "int8")
    sdk()
    subprocess.run(["tar", "-xf", handoff["path"], "-C", tmp_path], check=True)
    folder = tmp_path / "tiny-MLU370-X4.handoff"
    for words in (["bash", "compile.sh"], ["python3", "magicmind_run.py"], ["python3", "verify.py"]):
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads((folder / "compiled.json").read_text())["version"] == "1.7.0"
    argv = ["resume", str(folder), "--json", "--registry", str(tmp_path / "registry"), "--out", str(tmp_path / "out")]
    code = run_boundary(cli, argv, prog="convert", usage_code="CNV-2000")
    target = json.loads(capsys.readouterr().out)["targets"][0]
    assert (code, target["status"], target["validation"]["ran_on"]) == (0, "published", "device")


@pytest.mark.parametrize("precision", ["fp16", "fp32", "mixed"])
def test_without_outputs_of_the_card_a_resumed_artifact_is_published_on_the_forecast_and_stays_below_prod(
    sdk, convert, tmp_path: Path, capsys, monkeypatch, precision: str
) -> None:
    from artifacts.channels import Move, promote
    from artifacts.cli import run_boundary
    from artifacts.errors import RegistryError
    from convert.__main__ import cli

    monkeypatch.setenv("NEUWARE_HOME", str(tmp_path / "nowhere"))
    code, told = convert("--precision", precision)
    assert (code, told["targets"][0]["status"]) == (6, "handoff")
    sdk(card="")
    subprocess.run(["tar", "-xf", told["targets"][0]["handoff"]["path"], "-C", tmp_path], check=True)
    folder = tmp_path / "tiny-MLU370-X4.handoff"
    done = subprocess.run(["bash", "compile.sh"], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "compiles for MLU370-X4 without a card" in done.stderr
    argv = ["resume", str(folder), "--json", "--registry", str(tmp_path / "registry"), "--out", str(tmp_path / "out")]
    code = run_boundary(cli, argv, prog="convert", usage_code="CNV-2000")
    target = json.loads(capsys.readouterr().out)["targets"][0]
    assert (code, target["status"], target["precision"]) == (0, "published", precision)
    assert (target["validation"]["ran_on"], target["validation"]["passed"]) == ("forecast", True)
    promote(tmp_path / "registry", "tiny:1.0.0", Move(channel="staging", actor="test", reason="looks right"))
    with pytest.raises(RegistryError) as refusal:
        promote(tmp_path / "registry", "tiny:1.0.0", Move(channel="prod", actor="test", reason="looks right"))
    assert refusal.value.code == "CNV-9040"


def test_a_toolkit_of_another_release_is_told_by_the_bundle(sdk, convert, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NEUWARE_HOME", str(tmp_path / "nowhere"))
    _, told = convert()
    sdk("1.5.0")
    subprocess.run(["tar", "-xf", told["targets"][0]["handoff"]["path"], "-C", tmp_path], check=True)
    words = ["bash", "compile.sh"]
    folder = tmp_path / "tiny-MLU370-X4.handoff"
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, "MagicMind 1.5.0 is here, and the plan was made for 1.7.0" in done.stderr) == (6, True)


def test_doctor_holds_magicmind_against_its_driver_and_python(sdk, capsys) -> None:
    from artifacts.cli import run_boundary
    from convert.__main__ import cli

    sdk("1.6.0")
    run_boundary(cli, ["doctor", "--target", "MLU370-X4", "--json"], prog="convert", usage_code="CNV-2000")
    health = json.loads(capsys.readouterr().out)
    told = json.dumps(health)
    assert "MagicMind" in told and "1.6.0" in told and "5.10.22" in told
    assert (DOUBLES / "magicmind").is_dir()
