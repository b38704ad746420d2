"""What the card tools print, read: pure functions from a tool's output to the cards in it.

None of them raises, whatever the text holds: a line that doesn't read as expected is passed over. The shapes follow
the vendors' tools as public sources show them: npu-smi 24 and 25, cnmon 4 and 5, hy-smi of DTK 24 to 26, rocm-smi 5 to
7, amd-smi 23 to 27, rocminfo, mx-smi 2, nvidia-smi, ixsmi 3 and 4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Literal

import msgspec

Health = Literal["ok", "bad", "unknown"]

ANSI = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
ABSENT = frozenset({"", "-", "n/a", "[n/a]", "na", "[not supported]", "not supported", "[unknown error]", "unknown"})
MAX_CARDS = 1024


class Seen(msgspec.Struct, frozen=True, kw_only=True):
    """One card as a tool shows it. Texts are the tool's own, empty where it says nothing; memory is in MiB."""

    name: str = ""
    soc: str = ""
    """The compiler's name of the part, where the tool's output gives it."""
    arch: str = ""
    health: Health = "unknown"
    health_text: str = ""
    memory: int = 0
    driver: str = ""
    uuid: str = ""
    bus: str = ""
    key: tuple[str, str] = ("", "")
    """How the tool itself is asked about this card: its id and chip."""


def plain_lines(text: str) -> list[str]:
    """The lines of an output without colours and carriage returns."""
    return ANSI.sub("", text).replace("\r", "").splitlines()


# Ascend

_NPU_CARD = re.compile(r"^\|\s*(\d+)\s+(\S+)\s*\|\s*(OK|Warning|Alarm|Critical|UNKNOWN)\s*\|", re.IGNORECASE)
_NPU_CHIP = re.compile(r"^\|\s*(\d+)(?:\s+(\d+))?\s*\|\s*([0-9A-Fa-f:.]+|NA|N/A)\s*\|(.*)\|\s*$")
_NPU_DRIVER = re.compile(r"npu-smi\s+\S+\s+Version:\s*(\S+)", re.IGNORECASE)
_NPU_EXACT = re.compile(r"310|310P\d|310B\d|910A|910B|910B\d\S*|910Pro\w+|910Premium\w+")


def read_npu_smi(text: str) -> list[Seen]:
    """The chips of ``npu-smi info``: a row for the card, then one for the chip."""
    driver, cards, row = "", [], None
    for line in plain_lines(text):
        driver = match[1] if (match := _NPU_DRIVER.search(line)) else driver
        if match := _NPU_CARD.match(line):
            row = match
        elif row is not None and (match := _NPU_CHIP.match(line)):
            cards.append(_npu_chip(row, match, driver))
            row = None
    return cards[:MAX_CARDS]


def _npu_chip(card: re.Match[str], chip: re.Match[str], driver: str) -> Seen:
    name, word = card[2], card[3]
    totals = [int(total) for total in re.findall(r"\d+\s*/\s*(\d+)", chip[4])]
    return Seen(
        name=name,
        soc=f"Ascend{name}" if _NPU_EXACT.fullmatch(name) else "",
        health="ok" if word.upper() == "OK" else "unknown" if word.upper() == "UNKNOWN" else "bad",
        health_text=word,
        memory=next((total for total in reversed(totals) if total), 0),
        driver=driver,
        bus="" if chip[3].lower() in ABSENT else chip[3],
        key=(card[1], chip[1]),
    )


def read_npu_board(text: str) -> str:
    """The SoC that ``npu-smi info -t board`` tells of a chip: its chip name and NPU name; empty where it doesn't."""
    fields = dict(_fields(plain_lines(text)))
    chip, number = fields.get("chip name", ""), fields.get("npu name", "")
    chip = chip if chip.startswith("Ascend") or not chip else f"Ascend{chip}"
    if not number or number.lower() in ABSENT:
        return chip if _NPU_EXACT.fullmatch(chip.removeprefix("Ascend")) else ""
    return f"{chip}_{number}" if chip else ""


def _fields(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip().lower(), value.strip()


# Cambricon

_MLU_ROW = re.compile(r"^\|\s*\d+\s+\S+\s+(MLU\S+)\s+v?[\d.]+.*\|\s*([0-9A-Fa-f:.]+)\s*\|")
_MLU_MEMORY = re.compile(r"MiB\s*/\s*(\d+)\s*MiB")


def read_cnmon_info(text: str) -> list[Seen]:
    """The cards of ``cnmon info``: indented ``key : value`` lines under ``Card N``."""
    cards: list[dict[str, str]] = []
    group = ""
    for line in plain_lines(text):
        if re.match(r"^Card\s+\d+", line):
            cards.append({})
            continue
        key, colon, value = line.partition(":")
        if not cards or not line.strip() or not line.startswith(" "):
            continue
        depth = len(line) - len(line.lstrip())
        if not colon:
            group = line.strip().lower()
            continue
        cards[-1].setdefault(f"{group}/{key.strip().lower()}" if depth > 4 else key.strip().lower(), value.strip())
    return [_mlu(fields) for fields in cards if fields.get("product name")][:MAX_CARDS]


def _mlu(fields: dict[str, str]) -> Seen:
    states = [fields.get("health state/device", ""), fields.get("health state/driver", "")]
    known = [state for state in states if state]
    good = {"good", "running"}
    return Seen(
        name=fields["product name"],
        health=("ok" if all(state.lower() in good for state in known) else "bad") if known else "unknown",
        health_text=", ".join(known),
        memory=_number(fields.get("physical memory usage/total", "")),
        driver=fields.get("driver", "").lstrip("v"),
        uuid=_present(fields.get("uuid", "")),
    )


def read_cnmon_table(text: str) -> list[Seen]:
    """The cards of ``cnmon`` without arguments: two rows each."""
    lines = plain_lines(text)
    driver = _first(r"Driver\s+v([\d.]+)", lines)
    cards = []
    for line, following in pairwise([*lines, ""]):
        if match := _MLU_ROW.match(line):
            memory = _MLU_MEMORY.search(following)
            cards.append(Seen(name=match[1], bus=match[2], driver=driver, memory=int(memory[1]) if memory else 0))
    return cards[:MAX_CARDS]


# AMD and Hygon


def read_rocm_json(text: str) -> list[Seen]:
    """The cards of a ``--json`` answer of rocm-smi or hy-smi; the case of its keys differs by release."""
    document = first_json(text)
    if not isinstance(document, dict):
        return []
    plain = {str(key).lower(): _lower_keys(value) for key, value in document.items()}
    driver = plain.get("system", {}).get("driver version", "")
    numbers = sorted((int(key[4:]), key) for key in plain if re.fullmatch(r"card\d{1,4}", key))
    return [_rocm(plain[key], driver) for _, key in numbers][:MAX_CARDS]


def _rocm(fields: dict[str, str], driver: str) -> Seen:
    series, model = fields.get("card series", ""), fields.get("card model", "")
    mebibytes = _number(fields.get("vram total memory (mib)", ""))
    return Seen(
        name=next((text for text in (series, model) if text.lower() not in ABSENT and not text.startswith("0x")), ""),
        arch=fields.get("gfx version", ""),
        memory=mebibytes or _number(fields.get("vram total memory (b)", "")) >> 20,
        driver=driver,
        uuid=_present(fields.get("unique id", "")),
        bus=_present(fields.get("pci bus", "").partition(" ")[0]),
    )


def read_hy_table(text: str) -> int:
    """How many cards the table of hy-smi (or of an old DTK's rocm-smi) lists; its rows name no product."""
    lines = plain_lines(text)
    start = next((n for n, line in enumerate(lines) if re.match(r"^\s*(HCU|DCU)\s+\S", line)), len(lines))
    return min(MAX_CARDS, sum(bool(re.match(r"^\s*\d+\s+\S", line)) for line in lines[start + 1 :]))


def read_hy_health(text: str) -> dict[int, str]:
    """The state words of lines ``HCU[0] : Bus Id : 0000:01:00.0 : Healthy``, by card."""
    found = {}
    for line in plain_lines(text):
        if match := re.match(r"^\s*(?:HCU|DCU)\[(\d{1,4})\]\s*:.*:\s*(Healthy|Critical|Warning)\s*$", line):
            found[int(match[1])] = match[2]
    return found


def read_driver_line(text: str) -> str:
    """The version in a line ``Driver Version: 6.3.31``; empty where there is none."""
    return _first(r"Driver [Vv]ersion\s*:\s*([\w.\-]+)", plain_lines(text))


def read_amd_smi(text: str) -> list[Seen]:
    """The cards of ``amd-smi static --json``; older releases answer with the bare list."""
    document = first_json(text)
    rows = document.get("gpu_data") if isinstance(document, dict) else document
    return [_amd(row) for row in rows if isinstance(row, dict)][:MAX_CARDS] if isinstance(rows, list) else []


def _amd(row: dict[str, Any]) -> Seen:
    asic, vram, bus = (_object(row.get(key)) for key in ("asic", "vram", "bus"))
    size = vram.get("size")
    return Seen(
        name=_text(asic.get("market_name")),
        arch=_text(asic.get("target_graphics_version")),
        memory=_number(_text(size.get("value") if isinstance(size, dict) else size)),
        driver=_text(_object(row.get("driver")).get("version")),
        bus=_text(bus.get("bdf")),
    )


def read_rocminfo(text: str) -> list[Seen]:
    """The GPU agents of ``rocminfo``."""
    agents: list[dict[str, str]] = []
    for line in plain_lines(text):
        if re.match(r"^Agent\s+\d+", line.strip()):
            agents.append({})
        key, colon, value = line.partition(":")
        if agents and colon:
            agents[-1].setdefault(key.strip().lower(), value.strip())
    gpus = [agent for agent in agents if agent.get("device type") == "GPU"]
    return [
        Seen(name=agent.get("marketing name", ""), arch=agent.get("name", ""), uuid=_present(agent.get("uuid", "")))
        for agent in gpus
    ][:MAX_CARDS]


# MetaX

_MX_ROW = re.compile(r"^\|\s*\d+\s+((?:MetaX\s+)?(?:MX)?[CN]\d+\w*)\s*\|\s*([0-9A-Fa-f:.]+)?\s*\|")
_MX_SECOND = re.compile(r"^\|[^|]*\|\s*\d+\s*/\s*(\d+)\s*MiB\s*\|\s*([^|]*?)\s*\|")


def read_mx_smi(text: str) -> list[Seen]:
    """The cards of ``mx-smi``: two rows each; older releases have no state column."""
    lines = plain_lines(text)
    driver = _first(r"Kernel Mode Driver Version:\s*([\d.]+)", lines)
    stated = any("GPU-State" in line for line in lines)
    cards = []
    for line, following in pairwise([*lines, ""]):
        if not (match := _MX_ROW.match(line)):
            continue
        second = _MX_SECOND.match(following)
        state = second[2] if second and stated else ""
        cards.append(
            Seen(
                name=match[1],
                bus=match[2] or "",
                driver=driver,
                memory=int(second[1]) if second else 0,
                health="unknown" if not state else "ok" if state == "Available" else "bad",
                health_text=state,
            )
        )
    return cards[:MAX_CARDS]


# NVIDIA and Iluvatar


def read_query(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """The rows of ``--query-gpu=… --format=csv,noheader``, each with exactly these fields; absent values are empty."""
    rows = [[cell.strip() for cell in line.split(",")] for line in plain_lines(text)]
    found = [dict(zip(fields, row, strict=True)) for row in rows if len(row) == len(fields) and row[0].isdecimal()]
    return [{key: _present(value) for key, value in row.items()} for row in found][:MAX_CARDS]


def read_nvidia(text: str, fields: Sequence[str]) -> list[Seen]:
    """The cards of nvidia-smi. It has no word for health: counted uncorrectable memory errors are bad."""
    return [_nvidia(row) for row in read_query(text, fields)]


def _nvidia(row: dict[str, str]) -> Seen:
    errors = row.get("ecc.errors.uncorrected.volatile.total", "")
    capability = row.get("compute_cap", "")
    health: Health = "unknown" if not errors.isdecimal() else "bad" if int(errors[:18]) else "ok"
    return Seen(
        name=row["name"],
        arch=f"sm_{capability.replace('.', '')}" if re.fullmatch(r"\d{1,2}\.\d", capability) else "",
        health=health,
        health_text=f"{errors} uncorrected memory errors" if errors.isdecimal() else "",
        memory=_number(row.get("memory.total", "")),
        driver=row.get("driver_version", ""),
        uuid=row.get("uuid", ""),
        bus=row.get("pci.bus_id", ""),
    )


def read_ixsmi(text: str, fields: Sequence[str]) -> list[Seen]:
    """The cards of ixsmi. It has no word for health: a card without a memory total is bad."""
    cards = [_nvidia(row) for row in read_query(text, fields)]
    return [
        card
        if card.memory
        else msgspec.structs.replace(card, health="bad", health_text="the tool shows no memory of it")
        for card in cards
    ]


# shared


def first_json(text: str) -> Any:
    """The first JSON document that begins a line of a text; None where there is none. Warnings may stand before it."""
    plain = "\n".join(plain_lines(text))
    decoder = json.JSONDecoder()
    for match in list(re.finditer(r"^\s*[{\[]", plain, re.MULTILINE))[:50]:
        try:
            return decoder.raw_decode(plain, match.end() - 1)[0]
        except (ValueError, RecursionError):
            continue
    return None


def _lower_keys(value: Any) -> dict[str, str]:
    return {str(key).lower(): _text(item) for key, item in value.items()} if isinstance(value, dict) else {}


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return str(value).strip()[:200] if isinstance(value, str | int | float) and not isinstance(value, bool) else ""


def _present(text: str) -> str:
    return "" if text.lower() in ABSENT else text


def _number(text: str) -> int:
    match = re.match(r"\s*(\d{1,18})", text)
    return int(match[1]) if match else 0


def _first(pattern: str, lines: Sequence[str]) -> str:
    return next((match[1] for line in lines if (match := re.search(pattern, line))), "")
