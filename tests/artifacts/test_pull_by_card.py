"""``artifacts pull`` without --target takes what fits the card of the machine."""

from __future__ import annotations

import json

import pytest
from store_kit import make_release

from artifacts.cards import Card, find_cards
from artifacts.commands.pull import command
from artifacts.errors import RegistryError
from artifacts.matching import describe, fitness
from artifacts.publish import PublishRequest, publish
from artifacts.pull import pull

AS910B3 = {"target": "Ascend910B", "soc": "Ascend910B3"}
AS910B1 = {"target": "Ascend910B", "soc": "Ascend910B1"}
FAMILY = {"target": "Ascend910B", "soc": ""}
FIRST = {"target": "Ascend910", "soc": "Ascend910B"}
MLU = {"target": "MLU370-X4", "soc": "", "backend": "magicmind"}
MLU_FAMILY = {"target": "MLU370", "soc": "", "backend": "magicmind"}
GFX = {"target": "gfx942", "soc": "", "backend": "migraphx"}
L20 = {"target": "L20", "soc": "", "backend": "tensorrt"}
CPU = {"target": "cpu", "soc": "", "backend": "onnxruntime"}


@pytest.fixture
def store(tmp_path):
    def build(*targets):
        releases = tuple(
            make_release(tmp_path / str(number), content=b"%d" % number, **facts)
            for number, facts in enumerate(targets)
        )
        publish(tmp_path / "reg", PublishRequest(name="net", version="1.0.0", targets=releases))
        return tmp_path / "reg"

    return build


def taken(root, tmp_path) -> tuple[str, str]:
    pulled = pull(root, "net:1.0.0", tmp_path / "out", cards=find_cards())
    return pulled.target, pulled.soc


@pytest.mark.parametrize(
    ("card", "targets", "chosen"),
    [
        ("910b3", [AS910B1, AS910B3, CPU], AS910B3),
        ("910b-first", [FIRST, MLU], FIRST),
        ("910b3", [FAMILY, MLU, CPU], FAMILY),
        ("910b-first", [FIRST, AS910B3, CPU], FIRST),
        ("mlu370", [MLU, MLU_FAMILY, AS910B3], MLU),
        ("mlu370-old", [MLU, MLU_FAMILY, AS910B3], MLU_FAMILY),
        ("mi300x", [GFX, CPU], GFX),
        ("l20", [L20, AS910B3], L20),
        ("l20", [CPU], CPU),
    ],
)
def test_the_exact_part_is_taken_before_its_family(card_machine, store, tmp_path, card, targets, chosen) -> None:
    card_machine(card)
    assert taken(store(*targets), tmp_path) == (chosen["target"], chosen["soc"])


def test_two_kinds_of_cards_are_no_trouble_where_one_has_an_artifact(card_machine, store, tmp_path) -> None:
    card_machine("910b3", "l20")
    assert taken(store(AS910B3, MLU), tmp_path) == ("Ascend910B", "Ascend910B3")


def test_artifacts_for_two_kinds_of_cards_are_told(card_machine, store, tmp_path) -> None:
    card_machine("910b3", "l20")
    with pytest.raises(RegistryError) as caught:
        taken(store(AS910B3, L20), tmp_path)
    assert caught.value.code == "CNV-9072"
    assert caught.value.message == (
        "this machine has cards of several kinds (2 × 910B3 (npu-smi), NVIDIA L20 (nvidia-smi)), and net:1.0.0 has"
        " artifacts for more than one: Ascend910B (Ascend910B3) fp16 for 910B3; L20 fp16 for NVIDIA L20"
    )


@pytest.mark.parametrize("targets", [[AS910B1], [AS910B1, MLU, CPU], [FIRST, CPU], [MLU]])
def test_another_part_of_the_family_is_refused_with_what_there_is(card_machine, store, tmp_path, targets) -> None:
    card_machine("910b3")
    with pytest.raises(RegistryError) as caught:
        taken(store(*targets), tmp_path)
    assert caught.value.code == "CNV-9071"
    assert "2 × 910B3 (npu-smi)" in caught.value.message
    for facts in targets:
        assert facts["target"] in caught.value.message
    assert not (tmp_path / "out").exists()


def test_without_a_card_several_targets_are_listed(card_machine, store, tmp_path) -> None:
    card_machine()
    with pytest.raises(RegistryError) as caught:
        taken(store(AS910B3, CPU), tmp_path)
    assert caught.value.message == (
        "no card was found on this machine; net:1.0.0 has several targets: Ascend910B (Ascend910B3) fp16, cpu fp16"
    )


def test_without_a_card_the_only_target_is_taken(card_machine, store, tmp_path) -> None:
    card_machine()
    assert taken(store(AS910B3), tmp_path) == ("Ascend910B", "Ascend910B3")


def test_a_named_target_asks_no_card(card_machine, store, tmp_path, runner_of, monkeypatch) -> None:
    monkeypatch.setattr("artifacts.commands.pull.find_cards", lambda: pytest.fail("the card was asked for"))
    root = store(AS910B3, CPU)
    done = runner_of(command, ["net:1.0.0", str(tmp_path / "o"), "--target", "cpu", "--registry", str(root), "--json"])
    assert json.loads(done)["target"] == "cpu"


def test_the_command_takes_what_fits(card_machine, store, tmp_path, runner_of) -> None:
    card_machine("910b3")
    root = store(AS910B3, CPU)
    done = runner_of(command, ["net:1.0.0", str(tmp_path / "o"), "--registry", str(root), "--json"])
    assert json.loads(done)["soc"] == "Ascend910B3"


@pytest.fixture
def runner_of():
    from click.testing import CliRunner

    def call(click_command, arguments: list[str]) -> str:
        done = CliRunner().invoke(click_command, arguments, catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    return call


def test_an_ascend_family_never_fits_the_first_generation_part_of_the_same_name() -> None:
    first = Card(vendor="ascend", tool="npu-smi", name="910B", target="Ascend910", soc="Ascend910B", index=0)
    modern = Card(vendor="ascend", tool="npu-smi", name="910B3", target="Ascend910B3", soc="Ascend910B3", index=0)
    assert fitness("Ascend910B", "", modern) == 1
    assert fitness("Ascend910", "Ascend910B", modern) == 0
    assert fitness("Ascend910", "Ascend910B", first) == 3
    assert describe([first, modern]) == "910B (npu-smi), 910B3 (npu-smi)"
    assert fitness("Ascend910B", "", first) == 0
