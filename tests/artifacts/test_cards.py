"""The cards of a machine, asked of stand-ins for the vendors' tools."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts import card_texts, cards
from artifacts.cards import Card, find_cards, part_of


def facts(card: Card) -> tuple[object, ...]:
    return (card.name, card.target, card.soc, card.arch, card.health, card.memory, card.driver)


@pytest.mark.parametrize(
    ("machine", "vendor", "expected"),
    [
        (
            ["910b3"],
            "ascend",
            [
                ("910B3", "Ascend910B3", "Ascend910B3", "Ascend910B", "ok", 65536, "24.1.0"),
                ("910B3", "Ascend910B3", "Ascend910B3", "Ascend910B", "bad", 65536, "24.1.0"),
            ],
        ),
        (["910b-first"], "ascend", [("910B", "Ascend910", "Ascend910B", "Ascend910", "ok", 32768, "23.0.2")]),
        (["310p3"], "ascend", [("310P3", "Ascend310P3", "Ascend310P3", "Ascend310P", "ok", 21527, "23.0.0")] * 2),
        (
            ["a3"],
            "ascend",
            [
                ("Ascend910", "Ascend910_9392", "Ascend910_9392", "Ascend910_93", "ok", 65536, "25.2.0"),
                ("Ascend910", "Ascend910_9392", "Ascend910_9392", "Ascend910_93", "bad", 65536, "25.2.0"),
            ],
        ),
        (
            ["mlu370"],
            "cambricon",
            [
                ("MLU370-X4", "MLU370-X4", "MLU370-X4", "mtp_372", "ok", 24576, "5.10.22"),
                ("MLU370-X4", "MLU370-X4", "MLU370-X4", "mtp_372", "bad", 24576, "5.10.22"),
            ],
        ),
        (
            ["mlu370-old"],
            "cambricon",
            [("MLU370-X8", "MLU370-X8", "MLU370-X8", "mtp_372", "unknown", 23308, "5.10.13")],
        ),
        (["bw1000"], "hygon", [("BW", "BW1000", "BW1000", "gfx936", "unknown", 65520, "6.3.31-V1.5.0a")] * 2),
        (["k100-ai"], "hygon", [("K100_AI", "K100_AI", "K100_AI", "gfx928", "unknown", 65520, "6.3.31-V1.5.0a")] * 2),
        (["old-dtk"], "hygon", [("gfx906", "Z100", "Z100", "gfx906", "unknown", 0, "")] * 2),
        (["mi210"], "amd", [("AMD Instinct MI210", "MI210", "MI210", "gfx90a", "unknown", 65520, "6.7.0")]),
        (["mi300x"], "amd", [("AMD Instinct MI300X", "MI300X", "MI300X", "gfx942", "unknown", 196592, "")]),
        (["gfx90a-alone"], "amd", [("gfx90a", "gfx90a", "", "gfx90a", "unknown", 0, "")] * 2),
        (
            ["c500"],
            "metax",
            [
                ("MetaX C500", "C500", "C500", "maca", "ok", 65536, "2.14.8"),
                ("MXC500", "C500", "C500", "maca", "bad", 65536, "2.14.8"),
            ],
        ),
        (["c500-old"], "metax", [("MXC500", "C500", "C500", "maca", "unknown", 65536, "2.3.1")]),
        (["l20"], "nvidia", [("NVIDIA L20", "L20", "L20", "sm_89", "ok", 46068, "550.54.14")]),
        (
            ["a100-old-driver"],
            "nvidia",
            [
                ("NVIDIA A100-SXM4-80GB", "A100", "A100", "sm_80", "bad", 81251, "470.57.02"),
                ("NVIDIA A100-SXM4-80GB", "A100", "A100", "sm_80", "unknown", 0, "470.57.02"),
            ],
        ),
        (
            ["bi-v150"],
            "iluvatar",
            [
                ("Iluvatar BI-V150", "BI-V150", "BI-V150", "corex", "unknown", 32768, "4.3.8"),
                ("Iluvatar BI-V150", "BI-V150", "BI-V150", "corex", "bad", 0, "4.3.8"),
            ],
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, list) and isinstance(value[0], str) else "",
)
def test_a_vendors_tool_tells_its_cards(card_machine, machine, vendor, expected) -> None:
    card_machine(*machine)
    found = find_cards()
    assert [facts(card) for card in found] == expected
    assert {card.vendor for card in found} == {vendor}
    assert [card.index for card in found] == list(range(len(expected)))


def test_a_part_knows_its_families(card_machine) -> None:
    card_machine("910b3")
    assert find_cards()[0].families == ("Ascend910B",)


def test_the_first_generation_910b_belongs_to_no_atlas_a2_family(card_machine) -> None:
    card_machine("910b-first")
    assert find_cards()[0].families == ("Ascend910",)


def test_tools_of_several_vendors_each_tell_theirs(card_machine) -> None:
    card_machine("910b3", "l20")
    assert [(card.vendor, card.index) for card in find_cards()] == [("ascend", 0), ("ascend", 1), ("nvidia", 0)]


def test_no_tool_means_no_card_and_starts_nothing(monkeypatch) -> None:
    monkeypatch.setattr(cards, "FOLDERS", {})
    monkeypatch.setattr(cards, "run_process", lambda *_a, **_k: pytest.fail("a process was started"))
    assert find_cards({"PATH": "/nonexistent"}) == []


def test_every_tool_without_a_card_means_no_card(card_machine) -> None:
    card_machine()
    assert find_cards() == []


@pytest.mark.parametrize("fault", ["crash", "garbage", "empty", "flood"])
def test_odd_answers_mean_no_card(card_machine, fault) -> None:
    card_machine("910b3", "l20", fault=fault)
    assert find_cards() == []


def test_a_tool_that_hangs_is_ended_with_its_children(card_machine, monkeypatch) -> None:
    card_machine("mlu370", fault="hang")
    monkeypatch.setattr(cards, "SECONDS", 0.5)
    before = _sleepers()
    assert find_cards() == []
    deadline = time.monotonic() + 10
    while _sleepers() - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert _sleepers() - before == set()


def _sleepers() -> set[str]:
    found = set()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == b"sleep\x00600\x00":
                found.add(path.parent.name)
    return found


def test_a_variable_that_hides_cards_is_told(card_machine, monkeypatch) -> None:
    card_machine("mlu370")
    monkeypatch.setenv("MLU_VISIBLE_DEVICES", "1")
    assert {card.limited_by for card in find_cards()} == {"MLU_VISIBLE_DEVICES=1"}


@pytest.mark.parametrize(
    ("vendor", "product", "name"),
    [
        ("nvidia", "NVIDIA A10", "A10"),
        ("nvidia", "NVIDIA A10G", None),
        ("nvidia", "Tesla T4", "T4"),
        ("nvidia", "NVIDIA H800 PCIe", "H100"),
        ("amd", "AMD Instinct MI250X/MI250", None),
        ("amd", "AMD Radeon RX 7900 XTX", "RX7900XTX"),
        ("iluvatar", "Iluvatar MR-V100 DUO", "MR-V100"),
        ("iluvatar", "Iluvatar BI-V150S", None),
        ("hygon", "K100 AI", "K100_AI"),
        ("hygon", "K100", "K100"),
        ("cambricon", "MLU370", "MLU370"),
    ],
)
def test_a_products_name_is_read_by_whole_words(vendor, product, name) -> None:
    part = part_of(vendor, product)
    assert (part and part.name) == name


READERS = [
    card_texts.read_npu_smi, card_texts.read_npu_board, card_texts.read_cnmon_info, card_texts.read_cnmon_table,
    card_texts.read_rocm_json, card_texts.read_hy_table, card_texts.read_hy_health, card_texts.read_driver_line,
    card_texts.read_amd_smi, card_texts.read_rocminfo, card_texts.read_mx_smi,
    lambda text: card_texts.read_nvidia(text, ("index", "name", "memory.total")),
    lambda text: card_texts.read_ixsmi(text, ("index", "name", "memory.total")),
]  # fmt: skip
PIECES = st.sampled_from(
    ["| 0     910B3 | OK | ", "Card 0\n", "    Product Name : x\n", "{", "}", "[", "]", '"card0": ', '"gpu_data": ',
     "null", "1e999", "NaN", "Agent 1\n", "  Device Type: GPU\n", "HCU  Temp\n", "0 ", "0, x, 1\n", "|", "/", "\n",
     "\x1b[0m", "9" * 30]
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES | st.text(max_size=8), max_size=30).map("".join))
def test_no_reader_ever_raises(text) -> None:
    for read in READERS:
        read(text)
