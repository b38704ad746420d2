"""The examination: each vendor asked for, or each of which something is here, and the machine itself."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from artifacts.cards import Card, find_cards
from artifacts.together import together
from convert.backends import knows_backend, load_backend
from convert.backends.base import Missing, Toolchain
from convert.doctor.ascend import check_ascend
from convert.doctor.compat import judge_pair
from convert.doctor.machine import examine_machine
from convert.doctor.others import (
    check_cambricon,
    check_iluvatar,
    check_metax,
    check_migraphx,
    check_nothing,
    check_nvidia,
)
from convert.doctor.values import Checker, Examination, Finding, Health, Parts, Scene
from convert.errors import EXPECTED
from convert.installed import installed
from convert.settings import Settings
from op_registry.targets import all_targets
from op_registry.values import Target
from op_registry.vendors import all_vendors

CHECKERS: Mapping[str, Checker] = MappingProxyType(
    {
        "ascend": check_ascend,
        "cambricon": check_cambricon,
        "amd": check_migraphx,
        "hygon": check_migraphx,
        "nvidia": check_nvidia,
        "metax": check_metax,
        "iluvatar": check_iluvatar,
    }
)
"""A checker per vendor: one function, one line. Others are asked for their toolchain's version alone."""


def examine(
    targets: Sequence[Target],
    settings: Settings,
    environment: Mapping[str, str] | None = None,
    *,
    root: str = "/",
) -> Examination:
    """Examine this machine for some targets; without any, for every vendor.

    ``usable``: the machine can convert, and every target asked for can be compiled here; without targets, every
    vendor of which a toolchain or a card is here. ``root`` is where the machine's files are looked for.
    """
    environment = dict(os.environ if environment is None else environment)
    if settings.launcher:
        environment["CONVERT_LAUNCHER"] = settings.launcher
    cards = find_cards(environment)
    chosen = targets or _one_each(cards)
    vendors = tuple(together([partial(_vendor, target, cards, environment, root) for target in chosen]))
    machine = examine_machine(settings)
    wanted = vendors if targets else [health for health in vendors if health.present]
    return Examination(
        machine=machine,
        vendors=vendors,
        usable=machine.usable and all(health.usable for health in wanted),
    )


def _one_each(cards: Sequence[Card]) -> list[Target]:
    """One target for each vendor that has a backend here: that of its card, else its first family or part."""
    chosen: dict[str, Target] = {}
    by_name = {target.name: target for target in all_targets()}
    for card in cards:
        if card.target in by_name:
            chosen.setdefault(card.vendor, by_name[card.target])
    for target in all_targets():
        if knows_backend(target.backend) and target.backend != "onnxruntime":
            chosen.setdefault(target.vendor, target)
    order = list(all_vendors())
    return sorted(
        (target for target in chosen.values() if knows_backend(target.backend)),
        key=lambda target: order.index(target.vendor),
    )


def _vendor(target: Target, cards: Sequence[Card], environment: dict[str, str], root: str) -> Health:
    own = tuple(card for card in cards if card.vendor == target.vendor)
    found = _probe(target, environment)
    scene = Scene(target=target, found=found, cards=own, environment=environment, packages=dict(installed()), root=root)
    parts = CHECKERS.get(target.vendor, check_nothing)(scene)
    versions = {name: version for name, version in parts.versions.items() if version}
    findings = (*_toolchain_findings(found), *parts.findings, *_pair_findings(versions, parts), *_card_findings(own))
    here = isinstance(found, Toolchain)
    return Health(
        vendor=target.vendor,
        title=all_vendors()[target.vendor].title,
        target=target.name,
        toolchain=found.name,
        version=found.version if isinstance(found, Toolchain) else "",
        usable=here and all(finding.level != "blocked" for finding in findings),
        present=bool(own) or here,
        versions=versions,
        cards=own,
        findings=findings,
    )


def _probe(target: Target, environment: Mapping[str, str]) -> Toolchain | Missing:
    """What the backend finds; a toolchain that can't even be asked counts as missing, with the reason."""
    try:
        return load_backend(target.backend).probe(target, environment)
    except EXPECTED as error:
        return Missing(name=target.backend or "a compiler", reason=error.message, hint=error.hint)


def _toolchain_findings(found: Toolchain | Missing) -> list[Finding]:
    if isinstance(found, Missing):
        return [Finding(level="blocked", about=found.name, text=found.reason, hint=found.hint)]
    where = found.details.get("program") or found.details.get("home") or ""
    return [Finding(level="ok", about=found.name, text=f"{found.version}{f' at {where}' if where else ''}")]


def _pair_findings(versions: Mapping[str, str], parts: Parts) -> list[Finding]:
    found = []
    for component, needs in parts.pairs:
        if component in versions and needs in versions:
            finding = judge_pair(component, versions[component], needs, versions[needs])
            about = f"{component} {versions[component]}, {needs} {versions[needs]}"
            unknown = Finding(level="note", about=about, text="whether they belong together is not known")
            found.append(finding or unknown)
    return found


def _card_findings(cards: Sequence[Card]) -> list[Finding]:
    found = []
    for card in cards:
        told = f"{card.soc or card.name}" + (f", {card.memory} MiB" if card.memory else "")
        if card.health == "bad":
            hint = f"ask {card.tool} for its faults; take the card out of use until it is mended"
            text = f"{told}: not healthy ({card.health_text})"
            found.append(Finding(level="warning", about=f"card {card.index}", text=text, hint=hint))
        else:
            word = "healthy" if card.health == "ok" else "health not told"
            found.append(Finding(level="ok", about=f"card {card.index}", text=f"{told}: {word}"))
    return found
