"""Several targets in one run: each that passes is kept, whatever becomes of the others; it is one version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from handoff_kit import Machine, bash, device_outputs, reseal, run_om, unpack

from artifacts.drafts import seal
from artifacts.layout import Layout
from artifacts.pull import pull
from convert.errors import UsageError
from convert.handoff.resume import ResumeRequest, resume_bundle
from convert.pipeline import convert_model
from convert.request import Conversion, Request, as_json
from convert.values import LoadOptions


def several(machine: Machine, model: Path, *targets: str, **options: Any) -> Conversion:
    request = Request(load=LoadOptions(path=str(model)), targets=targets, **options)
    return convert_model(request, machine.settings, host=machine.host)


def measured(conversion: Conversion, target: str, folder: Path, cann: dict[str, str]) -> Path:
    """The bundle of a target, compiled and measured where the toolkit is."""
    (result,) = (one for one in conversion.targets if one.target == target)
    assert result.handoff is not None
    folder.mkdir()
    place = unpack(result.handoff["path"], folder)
    assert bash(place, {**cann, "SOC": target} if target != "Ascend910B" else cann).returncode == 0
    device_outputs(place, run_om)
    return place


def resumed(machine: Machine, place: Path, **options: Any) -> Conversion:
    return resume_bundle(ResumeRequest(place=str(place), **options), machine.settings, host=machine.host)


def tags(machine: Machine) -> list[str]:
    layout = Layout(Path(machine.settings.registry) / "mlp")
    return [ref.tag for ref in layout.refs() if not ref.tag.startswith("sha256-")]


def test_what_passes_is_kept_while_another_target_is_handed_off(machine: Machine, mlp: Path, tmp_path: Path) -> None:
    ended = several(machine, mlp, "cpu", "Ascend910B")
    assert (ended.status, ended.exit_code, ended.version) == ("handoff", 6, "1.0.0")
    cpu, ascend = as_json(ended)["targets"]
    assert (cpu["status"], cpu["artifact"]["ref"], cpu["error"]) == ("built", "mlp:draft-1.0.0-cpu", None)
    assert "published when Ascend910B passed too" in cpu["notes"][-1]["text"]
    assert (ascend["status"], ascend["artifact"]) == ("handoff", None)
    assert tags(machine) == ["draft-1.0.0", "draft-1.0.0-cpu"]
    pulled = pull(Path(machine.settings.registry), "mlp:draft-1.0.0-cpu", tmp_path / "pulled", target="cpu")
    assert pulled.target == "cpu"


def test_the_resumed_bundle_completes_the_version(
    machine: Machine, mlp: Path, tmp_path: Path, cann: dict[str, str]
) -> None:
    first = several(machine, mlp, "cpu", "Ascend910B")
    place = measured(first, "Ascend910B", tmp_path / "away", cann)
    ended = resumed(machine, place)
    assert (ended.status, ended.exit_code, ended.version) == ("published", 0, "1.0.0")
    assert ended.targets[0].artifact is not None and ended.targets[0].artifact.ref == "mlp:1.0.0-ascend910b3"
    assert tags(machine) == ["1.0.0", "1.0.0-ascend910b3", "1.0.0-cpu"]
    again = several(machine, mlp, "cpu", "Ascend910B")
    assert (again.targets[0].status, again.version) == ("published", "1.0.0")
    assert tags(machine) == ["1.0.0", "1.0.0-ascend910b3", "1.0.0-cpu"]


def test_two_bundles_are_resumed_one_at_a_time_in_any_order(
    machine: Machine, mlp: Path, tmp_path: Path, cann: dict[str, str]
) -> None:
    first = several(machine, mlp, "Ascend310P3", "Ascend910B")
    assert (first.exit_code, Path(machine.settings.registry).exists()) == (6, False)
    one = resumed(machine, measured(first, "Ascend910B", tmp_path / "one", cann))
    assert (one.status, one.exit_code, one.error) == ("built", 0, None)
    assert tags(machine) == ["draft-1.0.0", "draft-1.0.0-ascend910b3"]
    other = resumed(machine, measured(first, "Ascend310P3", tmp_path / "other", cann))
    assert (other.status, other.exit_code) == ("published", 0)
    assert tags(machine) == ["1.0.0", "1.0.0-ascend310p3", "1.0.0-ascend910b3"]


def test_a_gate_that_fails_loses_nothing_of_the_others(
    machine: Machine, mlp: Path, tmp_path: Path, cann: dict[str, str]
) -> None:
    first = several(machine, mlp, "cpu", "Ascend910B")
    place = measured(first, "Ascend910B", tmp_path / "away", cann)
    failed = resumed(machine, place, gate={"rel_l2": 0.0, "max_abs": 0.0})
    assert (failed.status, failed.exit_code) == ("failed", 8)
    assert tags(machine) == ["draft-1.0.0", "draft-1.0.0-cpu"]
    assert resumed(machine, place).status == "published"


def test_a_target_that_fails_sets_the_exit_code_and_the_others_are_kept(machine: Machine, mlp: Path) -> None:
    ended = several(machine, mlp, "cpu", "MI300X", gate_on="migraphx-ref")
    assert {one.target: one.status for one in ended.targets} == {"cpu": "failed", "MI300X": "failed"}
    ended = several(machine, mlp, "cpu", "Ascend910B", "MLU370-X4", options={"level": "off"})
    states = {one.target: one.status for one in ended.targets}
    assert states == {"cpu": "built", "Ascend910B": "failed", "MLU370-X4": "failed"}
    assert (ended.status, ended.exit_code) == ("failed", 2)
    assert tags(machine) == ["draft-1.0.0", "draft-1.0.0-cpu"]


def test_a_draft_is_published_without_the_missing_by_name_and_reason(machine: Machine, mlp: Path) -> None:
    several(machine, mlp, "cpu", "Ascend910B")
    seal(Path(machine.settings.registry), "mlp", "1.0.0", actor="eve", reason="the card comes next year")
    assert tags(machine) == ["1.0.0", "1.0.0-cpu"]


def test_another_run_neither_joins_the_draft_nor_takes_its_version(machine: Machine, mlp: Path) -> None:
    several(machine, mlp, "cpu", "Ascend910B")
    alone = several(machine, mlp, "cpu", precision="bf16")
    assert (alone.status, alone.version) == ("published", "1.0.1")
    other = several(machine, mlp, "cpu", "MI300X")
    assert (other.version, other.targets[0].status) == ("1.0.2", "built")
    assert {"draft-1.0.0", "draft-1.0.2"} <= set(tags(machine))


def test_a_version_that_is_asked_for_collects_targets_of_several_runs(
    machine: Machine, mlp: Path, tmp_path: Path, cann: dict[str, str]
) -> None:
    first = several(machine, mlp, "cpu", "Ascend910B", version="2.1.0")
    assert first.targets[0].artifact is not None and first.targets[0].artifact.ref == "mlp:draft-2.1.0-cpu"
    ended = resumed(machine, measured(first, "Ascend910B", tmp_path / "away", cann))
    assert (ended.status, ended.version) == ("published", "2.1.0")


def test_a_run_that_publishes_nothing_declares_nothing(
    machine: Machine, mlp: Path, tmp_path: Path, cann: dict[str, str]
) -> None:
    first = several(machine, mlp, "cpu", "Ascend910B", publish=False)
    assert not Path(machine.settings.registry).exists()
    assert resumed(machine, measured(first, "Ascend910B", tmp_path / "away", cann)).status == "published"


@pytest.mark.parametrize("declared", [("cpu",), ("Ascend910B", "../../etc"), ("Ascend910B",) * 2000])
def test_a_forged_list_of_targets_is_refused(machine: Machine, bundle: Path, declared: tuple[str, ...]) -> None:
    reseal(bundle, declared=declared)
    with pytest.raises(UsageError) as refusal:
        resumed(machine, bundle)
    assert refusal.value.code == "CNV-2302"


def test_a_name_that_leaves_the_folder_is_refused_before_anything_runs(
    machine: Machine, mlp: Path, bundle: Path, tmp_path: Path
) -> None:
    ended = several(machine, mlp, "cpu", name="../../etc")
    assert ended.error is not None and (ended.error["code"], ended.exit_code) == ("CNV-2402", 2)
    assert not Path(machine.settings.out).exists()
    with pytest.raises(UsageError) as refusal:
        resumed(machine, bundle, name="../../etc")
    assert refusal.value.code == "CNV-2402"
