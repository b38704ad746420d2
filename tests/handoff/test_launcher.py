"""Compilers behind a launcher: in a container, by ssh, by a scheduler."""

from __future__ import annotations

import shlex
from pathlib import Path

import msgspec
import pytest
from handoff_kit import Machine

from convert.backends.asking import launcher_fault
from convert.errors import UsageError
from convert.launcher import check_launcher, launched, parse_launcher

FOLDER = Path("/srv/a b")
ARGV = ["atc", "--input_shape=x:1,3;y:2", "--output=out/model"]


@pytest.mark.parametrize(
    ("launcher", "wanted"),
    [
        ("", ARGV),
        ("srun -p npu", ["srun", "-p", "npu", *ARGV]),
        ("docker run -v {folder}:{folder} -w {folder} cann",
         ["docker", "run", "-v", "/srv/a b:/srv/a b", "-w", "/srv/a b", "cann", *ARGV]),
        ("ssh build7", ["ssh", "build7", f"cd '/srv/a b' && {shlex.join(ARGV)}"]),
        ("ssh build7 'source env.sh && cd {folder} && {command}'",
         ["ssh", "build7", f"source env.sh && cd '/srv/a b' && {shlex.join(ARGV)}"]),
    ],
)  # fmt: skip
def test_a_launcher_is_put_before_the_command_with_its_places_filled_in(launcher: str, wanted: list[str]) -> None:
    assert launched(parse_launcher(launcher), ARGV, {}, FOLDER) == wanted


def test_variables_are_set_on_the_other_side() -> None:
    assert launched(["srun"], ARGV, {"B": "2 3", "A": "1"}, FOLDER) == ["srun", "env", "A=1", "B=2 3", *ARGV]
    assert launched([], ARGV, {"B": "2"}, FOLDER) == ARGV


def test_an_open_quote_is_refused() -> None:
    with pytest.raises(UsageError) as refusal:
        parse_launcher("ssh build7 'cd {folder}")
    assert refusal.value.code == "CNV-2311"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("nonsense {…", "CNV-2311"),
        ("env {fold}", "CNV-2311"),
        ("srunn -p npu", "CNV-2313"),
        ("/nowhere/enter {folder}", "CNV-2313"),
    ],
)
def test_what_is_no_launcher_is_refused_by_name_before_anything_runs(text: str, code: str) -> None:
    with pytest.raises(UsageError) as refusal:
        check_launcher(text)
    assert (refusal.value.code, text in refusal.value.message) == (code, True)


@pytest.mark.parametrize("text", ["", "env", 'sh -c "cd ${HOME} && {command}"', "env --format {{.ID}} -w {folder}"])
def test_places_of_shells_and_templates_are_no_places_of_ours(text: str) -> None:
    check_launcher(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("env", ""),
        ('sh -c "cd {folder} && {command}"', ""),
        ("false", "exit code 1"),
        ("echo", "ran nothing: sh -c"),
        ('sh -c "echo no route to host; exit 255"', "exit code 255: no route to host"),
    ],
)
def test_a_launcher_must_come_back_with_the_result_of_a_sum(text: str, said: str) -> None:
    fault = launcher_fault(parse_launcher(text))
    assert (bool(fault), said in fault) == (bool(said), True)


def test_a_launcher_that_starts_nothing_is_named_instead_of_a_compiler_that_failed(machine: Machine, mlp: Path) -> None:
    machine.settings = msgspec.structs.replace(machine.settings, launcher="false")
    for target in ("openvino-cpu", "L20"):
        ended = machine.convert(mlp, target)
        assert (ended.status, ended.exit_code) == ("handoff", 6)
        assert ended.error is not None and "the launcher `false` does not work" in ended.error["message"]


def entering(folder: Path, name: str, cann: dict[str, str], body: str) -> Path:
    """A program that enters another world: no variable of ours but those of the toolkit there."""
    kept = " ".join(f"{key}={shlex.quote(value)}" for key, value in cann.items())
    path = folder / name
    path.write_text(f"#!/bin/bash\nclean=(env -i HOME=/ {kept})\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("name", "body", "arguments"),
    [
        ("docker", 'cd "$2" && exec "${clean[@]}" "${@:3}"', "-w {folder}"),
        ("ssh", 'cd / && exec "${clean[@]}" sh -c "$2"', "build7"),
        ("srun", 'exec "${clean[@]}" "$@"', ""),
    ],
)
def test_the_toolkit_behind_a_launcher_compiles_into_our_folder(
    machine: Machine, mlp: Path, tmp_path: Path, cann: dict[str, str], name: str, body: str, arguments: str
) -> None:
    program = entering(tmp_path, name, cann, body)
    machine.settings = msgspec.structs.replace(machine.settings, launcher=f"{program} {arguments}".strip())
    ended = machine.convert(mlp, "Ascend910B", soc="Ascend910B3", publish=False, use_cache=False)
    (target,) = ended.targets
    assert target.error is None
    assert (target.status, target.soc, target.toolchain) == ("built", "Ascend910B3", {"CANN": "8.5.0"})
    assert target.artifact is not None and Path(target.artifact.path).stat().st_size > 0
    assert target.report is not None and target.report.ran_on in ("device", "forecast")


def test_a_launcher_that_leads_nowhere_is_a_missing_toolchain(machine: Machine, mlp: Path, tmp_path: Path) -> None:
    program = entering(tmp_path, "docker", {}, 'exec "${clean[@]}" PATH=/usr/bin:/bin "$@"')
    machine.settings = msgspec.structs.replace(machine.settings, launcher=str(program))
    ended = machine.convert(mlp, "Ascend910B", soc="Ascend910B3")
    assert (ended.status, ended.exit_code) == ("handoff", 6)
    assert ended.error is not None and "does not answer" in ended.error["message"]
