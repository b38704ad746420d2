"""The cards of this machine, asked of the vendors' own tools.

A machine without cards costs nothing: a tool that isn't there isn't started. Each call has a time limit, since a card
that hangs can hang its tool. What a tool answers oddly counts as no card; exit codes alone are not believed, because
some tools end with 0 without a card. Nothing here raises.
"""

from __future__ import annotations

import itertools
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from artifacts.card_texts import (
    MAX_CARDS,
    Health,
    Seen,
    read_amd_smi,
    read_cnmon_info,
    read_cnmon_table,
    read_driver_line,
    read_hy_health,
    read_hy_table,
    read_ixsmi,
    read_mx_smi,
    read_npu_board,
    read_npu_smi,
    read_nvidia,
    read_rocm_json,
    read_rocminfo,
)
from artifacts.errors import ModelConvertError
from artifacts.runner import run_process
from artifacts.scratch import temporary_folder
from artifacts.together import together
from op_registry.targets import all_socs, all_targets
from op_registry.values import Target

SECONDS = 10.0
"""The longest that one call of a tool may take."""
OUTPUT_BYTES = 4 << 20
HUNG_FOR = 300.0
"""Seconds for which a tool that gave no answer is not asked again: one command searches several times."""
_hung: dict[str, float] = {}
FOLDERS: dict[str, tuple[str, ...]] = {
    "npu-smi": ("/usr/local/sbin", "/usr/local/bin"),
    "hy-smi": ("/opt/hyhal/bin",),
    "rocm-smi": ("/opt/rocm/bin",),
    "amd-smi": ("/opt/rocm/bin",),
    "rocminfo": ("/opt/rocm/bin", "/opt/dtk/bin"),
    "rocm_agent_enumerator": ("/opt/rocm/bin", "/opt/dtk/bin"),
    "mx-smi": ("/opt/mxdriver/bin", "/opt/maca/bin"),
    "ixsmi": ("/usr/local/corex/bin",),
}
"""Where tools are put that often aren't on PATH."""
ROCM_TOOLS = ("rocm-smi", "amd-smi", "rocminfo", "rocm_agent_enumerator")
"""Tools that are looked for below ``ROCM_PATH``, too."""
LIMITED_BY: dict[str, tuple[str, ...]] = {
    "ascend": ("ASCEND_RT_VISIBLE_DEVICES",),
    "cambricon": ("MLU_VISIBLE_DEVICES",),
    "hygon": ("HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
    "amd": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "CUDA_VISIBLE_DEVICES"),
    "metax": ("MACA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
    "nvidia": ("CUDA_VISIBLE_DEVICES",),
    "iluvatar": ("CUDA_VISIBLE_DEVICES",),
}
"""Variables that hide cards from a program, but not from the vendor's tool."""
BY_ARCH = ("amd", "hygon")
"""Vendors whose compilers build for an architecture, so that it tells the target of a card whose name is not known."""
HYGON_ARCHS = frozenset({"gfx926", "gfx928", "gfx936", "gfx938"})

Probe = Callable[["_Tools"], tuple[str, list[Seen]]]
"""One vendor's question: the tool that answered, and the cards that it shows."""


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One card of this machine."""

    vendor: str
    tool: str
    """The vendor's tool that told of it."""
    name: str
    """The product or SoC as the tool says it."""
    target: str = ""
    """The target's name in ``convert targets``: the exact part, else its family; empty where none is known."""
    soc: str = ""
    """The exact part as the compiler takes it; empty where it isn't known."""
    arch: str = ""
    index: int
    """Counted from 0 in the order of the tool."""
    health: Health = "unknown"
    health_text: str = ""
    """The tool's own word for its health."""
    memory: int = 0
    """In MiB; 0 where the tool doesn't say."""
    driver: str = ""
    uuid: str = ""
    bus: str = ""
    limited_by: str = ""
    """A variable of the environment that hides cards from programs, with its value (``MLU_VISIBLE_DEVICES=0``)."""

    @property
    def families(self) -> tuple[str, ...]:
        """The families that this part belongs to."""
        return tuple(
            target.name
            for target in all_targets()
            if target.vendor == self.vendor
            and target.kind == "family"
            and (target.name == self.target or self.soc in target.members)
        )


def find_cards(environment: Mapping[str, str] | None = None, vendors: Sequence[str] = ()) -> list[Card]:
    """The cards of this machine, by vendor and in each tool's order; an empty list where there are none.

    ``environment`` stands in for this process's own: tools are looked for on its ``PATH``. ``vendors``: ask no others.
    """
    environment = os.environ if environment is None else environment
    try:
        with temporary_folder("cards") as scratch:
            asked = _Tools(Path(scratch), environment)
            wanted = [probe for probe in _PROBES if not vendors or probe[0] in vendors]
            by_vendor = together([partial(_cards, asked, *probe) for probe in wanted])
            found = [card for cards in by_vendor for card in cards]
    except OSError:
        return []
    return found


class _Tools:
    """Runs the tools of one search, each in a scratch folder, and remembers none of it afterwards."""

    def __init__(self, scratch: Path, environment: Mapping[str, str]) -> None:
        self.scratch = scratch
        self.environment = environment
        self._calls = itertools.count()

    def where(self, tool: str) -> str:
        """The tool's path; empty where it isn't on this machine."""
        root = self.environment.get("ROCM_PATH", "") if tool in ROCM_TOOLS else ""
        folders = [self.environment.get("PATH", ""), f"{root}/bin" if root else "", *FOLDERS.get(tool, ())]
        return shutil.which(tool, path=os.pathsep.join(filter(None, folders))) or ""

    def output(self, tool: str, *arguments: str) -> str:
        """What a call printed; empty where the tool isn't here or hung.

        Its exit code isn't asked: some tools end with 0 without a card, and some with another code beside good rows.
        """
        path = self.where(tool)
        if not path or time.monotonic() - _hung.get(path, -HUNG_FOR) < HUNG_FOR:
            return ""
        folder = self.scratch / str(next(self._calls))
        folder.mkdir()
        log = folder / "output.txt"
        try:
            finished = run_process(
                [path, *arguments],
                folder=folder,
                log=log,
                timeout=SECONDS,
                environment={**self.environment, "LC_ALL": "C"},
            )
        except ModelConvertError:
            return ""
        if finished.timed_out:
            _hung[path] = time.monotonic()
        if finished.timed_out or not log.is_file():
            return ""
        with log.open("rb") as stream:
            return stream.read(OUTPUT_BYTES).decode("utf-8", "replace")


def _cards(tools: _Tools, vendor: str, probe: Probe) -> list[Card]:
    tool, seen = probe(tools)
    limits = [name for name in LIMITED_BY.get(vendor, ()) if name in tools.environment]
    limited_by = ", ".join(f"{name}={tools.environment[name]}" for name in limits)
    return [_card(vendor, tool, index, card, limited_by) for index, card in enumerate(seen)]


def _card(vendor: str, tool: str, index: int, seen: Seen, limited_by: str) -> Card:
    part = _exact(vendor, seen.soc) if seen.soc else part_of(vendor, seen.name)
    target, soc = _named(vendor, part, seen)
    return Card(
        vendor=vendor,
        tool=tool,
        name=seen.name or seen.soc or seen.arch or "unknown",
        target=target,
        soc=soc,
        arch=seen.arch or (part.arch if part else ""),
        index=index,
        health=seen.health,
        health_text=seen.health_text,
        memory=seen.memory,
        driver=seen.driver,
        uuid=seen.uuid,
        bus=seen.bus,
        limited_by=limited_by,
    )


def _named(vendor: str, part: Target | None, seen: Seen) -> tuple[str, str]:
    """The target and the exact part. A part that is no target by itself stands under its family."""
    targets = [target for target in all_targets() if target.vendor == vendor]
    if part is None:
        by_arch = [target for target in targets if vendor in BY_ARCH and seen.arch and target.arch == seen.arch]
        exact = seen.soc or (by_arch[0].name if len(by_arch) == 1 and by_arch[0].kind == "soc" else "")
        family = next((target.name for target in by_arch if target.kind == "family"), exact)
        return (family or _family_by_name(targets, seen.name), exact)
    if part.kind == "family":
        return part.name, ""
    if any(target.kind == "soc" and target.name == part.name for target in targets):
        return part.name, part.name
    families = (target.name for target in targets if target.kind == "family" and part.name in target.members)
    return next(families, ""), part.name


def _family_by_name(targets: Iterable[Target], name: str) -> str:
    """The family that a tool's name is an alias of: ``Ascend950PR`` before its board was asked."""
    wanted = _plain(name)
    families = (target for target in targets if target.kind == "family")
    return next((one.name for one in families if wanted in {_plain(text) for text in (one.name, *one.aliases)}), "")


def _exact(vendor: str, soc: str) -> Target | None:
    return next((part for part in all_socs() if part.vendor == vendor and part.name == soc), None)


def part_of(vendor: str, product: str) -> Target | None:
    """The part, or else the family, that a product's name speaks of: ``NVIDIA A100-SXM4-80GB`` → ``A100``.

    Words are compared as wholes, the longest run of words first; a name that speaks of two parts (``MI250X/MI250``)
    gives none.
    """
    named = {part.name: part for text in product[:200].split("/") if (part := _spoken(vendor, text)) is not None}
    return next(iter(named.values())) if len(named) == 1 else None


def _spoken(vendor: str, product: str) -> Target | None:
    words = [re.sub(r"^mx(?=[cn]\d)", "", word) for word in re.split(r"[\s_\-()]+", product.casefold()) if word][:12]
    candidates = [target for target in (*all_socs(), *all_targets()) if target.vendor == vendor]
    spelled: dict[str, Target] = {}
    for target in candidates:
        for text in (target.name, *target.aliases):
            spelled.setdefault(_plain(text), target)
    for length in range(min(4, len(words)), 0, -1):
        runs = ("".join(words[start : start + length]) for start in range(len(words) - length + 1))
        found = {spelled[run].name: spelled[run] for run in runs if run in spelled}
        if found:
            return next(iter(found.values())) if len(found) == 1 else None
    return None


def _plain(text: str) -> str:
    return re.sub(r"[\s_\-]+", "", text.casefold())


# one probe for each vendor


def _ascend(tools: _Tools) -> tuple[str, list[Seen]]:
    cards = read_npu_smi(tools.output("npu-smi", "info"))
    return "npu-smi", [card if card.soc else _ask_board(tools, card) for card in cards]


def _ask_board(tools: _Tools, card: Seen) -> Seen:
    text = tools.output("npu-smi", "info", "-t", "board", "-i", card.key[0], "-c", card.key[1])
    return msgspec.structs.replace(card, soc=read_npu_board(text))


def _cambricon(tools: _Tools) -> tuple[str, list[Seen]]:
    return "cnmon", read_cnmon_info(tools.output("cnmon", "info")) or read_cnmon_table(tools.output("cnmon"))


def _hygon(tools: _Tools) -> tuple[str, list[Seen]]:
    """Hygon's own tool; where an old DTK has only rocm-smi, its table with the columns of a DCU tells whose it is."""
    tool = "hy-smi" if tools.where("hy-smi") else "rocm-smi"
    table = tools.output(tool)
    count = read_hy_table(table)
    if not count:
        whole = bool(tools.where("hy-smi"))
        return "rocminfo", [card for card in _agents(tools) if whole or card.arch in HYGON_ARCHS]
    cards = read_rocm_json(tools.output(tool, "--showproductname", "--json")) or [Seen()] * count
    memory = read_rocm_json(tools.output(tool, "--showmeminfo", "vram", "--json"))
    if len(memory) == len(cards):
        pairs = zip(cards, memory, strict=True)
        cards = [msgspec.structs.replace(card, memory=other.memory) for card, other in pairs]
    driver = read_driver_line(tools.output(tool, "--showdriverversion"))
    words = read_hy_health(table)
    return tool, [_hygon_card(card, driver, words.get(index, "")) for index, card in enumerate(_archs(tools, cards))]


def _hygon_card(card: Seen, driver: str, word: str) -> Seen:
    health: Health = "unknown" if not word else "ok" if word == "Healthy" else "bad"
    return msgspec.structs.replace(card, driver=driver or card.driver, health=health, health_text=word)


def _amd(tools: _Tools) -> tuple[str, list[Seen]]:
    if tools.where("hy-smi") or read_hy_table(tools.output("rocm-smi")):
        return "rocm-smi", []
    arguments = ("--showproductname", "--showmeminfo", "vram", "--showdriverversion", "--json")
    if cards := read_rocm_json(tools.output("rocm-smi", *arguments)):
        return "rocm-smi", _archs(tools, cards)
    if cards := read_amd_smi(tools.output("amd-smi", "static", "--asic", "--bus", "--vram", "--json")):
        return "amd-smi", cards
    return "rocminfo", [card for card in _agents(tools) if card.arch not in HYGON_ARCHS]


def _agents(tools: _Tools) -> list[Seen]:
    """What the runtime itself sees, by ``rocminfo``, else by the architectures that ``rocm_agent_enumerator`` lists.

    Older ones list the processor first, as gfx000.
    """
    if tools.where("rocminfo"):
        return read_rocminfo(tools.output("rocminfo"))
    names = re.findall(r"^gfx\w+$", tools.output("rocm_agent_enumerator"), re.MULTILINE)
    return [Seen(arch=name) for name in names if name != "gfx000"][:MAX_CARDS]


def _archs(tools: _Tools, cards: list[Seen]) -> list[Seen]:
    """The cards with the architecture that rocminfo tells, where the first tool told none."""
    if all(card.arch for card in cards):
        return cards
    agents = read_rocminfo(tools.output("rocminfo"))
    if len(agents) != len(cards):
        return cards
    pairs = zip(cards, agents, strict=True)
    return [msgspec.structs.replace(card, arch=agent.arch, name=card.name or agent.name) for card, agent in pairs]


def _metax(tools: _Tools) -> tuple[str, list[Seen]]:
    return "mx-smi", read_mx_smi(tools.output("mx-smi"))


_NVIDIA_FIELDS = (
    "index", "name", "uuid", "pci.bus_id", "driver_version", "memory.total",
    "ecc.errors.uncorrected.volatile.total", "compute_cap",
)  # fmt: skip
_IXSMI_FIELDS = ("index", "name", "uuid", "pci.bus_id", "memory.total", "driver_version")


def _nvidia(tools: _Tools) -> tuple[str, list[Seen]]:
    """``compute_cap`` needs a driver of about 510 or newer; an older one refuses the whole question (exit 2)."""
    for fields in (_NVIDIA_FIELDS, _NVIDIA_FIELDS[:-1]):
        query = f"--query-gpu={','.join(fields)}"
        if cards := read_nvidia(tools.output("nvidia-smi", query, "--format=csv,noheader,nounits"), fields):
            return "nvidia-smi", cards
    return "nvidia-smi", []


def _iluvatar(tools: _Tools) -> tuple[str, list[Seen]]:
    query = f"--query-gpu={','.join(_IXSMI_FIELDS)}"
    return "ixsmi", read_ixsmi(tools.output("ixsmi", query, "--format=csv,noheader"), _IXSMI_FIELDS)


_PROBES: tuple[tuple[str, Probe], ...] = (
    ("ascend", _ascend),
    ("cambricon", _cambricon),
    ("hygon", _hygon),
    ("amd", _amd),
    ("metax", _metax),
    ("nvidia", _nvidia),
    ("iluvatar", _iluvatar),
)
