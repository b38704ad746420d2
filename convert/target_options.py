"""What a request asks of one target: precision, SoC, toolchain version; and what means nothing there is refused.

Everything here is decided before anything runs, for all targets at once.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec

from artifacts.digest import canonical_json, read_start
from convert.backends import BACKENDS, knows_backend, load_backend
from convert.backends.base import Missing, Toolchain
from convert.errors import EXPECTED, ToolchainMissing, UnsupportedOps, UsageError
from convert.request import Request
from convert.settings import Settings
from convert.values import CheckedGraph, Precision
from op_registry.errors import UnknownVersion
from op_registry.targets import LITERAL_FIRST_GENERATION, find_soc, find_target
from op_registry.values import Target
from op_registry.vendors import all_vendors, known_version, resolve_version

PREPROCESSING = ("atc",)
"""Backends whose compiler prepares images itself. One of another distribution is asked by its ``preprocesses``."""
PREPROCESS_BYTES = 1 << 16
PRECHECK = "precheck"
"""An option of backends that can ask their toolkit which nodes it refuses, before anything is compiled."""


def precision_of(request: Request, target: Target) -> Precision:
    """The precision asked for, or the target's default; with ``auto`` the ladder decides later."""
    asked = "" if request.precision == "auto" else request.precision
    return cast(Precision, msgspec.convert(asked or target.default_precision, Precision))


def soc_asked(target: Target, request: Request, settings: Settings) -> str:
    """The exact SoC: that of ``--soc`` where it is a part of this target, else that of the settings; empty: neither.

    The literal first-generation part is asked for by ``--soc`` alone; a setting is about this machine's own card.
    """
    for text in (request.soc, settings.soc):
        if text and (soc := part_of(target, text)):
            return soc
    return ""


def part_of(target: Target, text: str) -> str:
    """The name of the part that a text means, where it belongs to a target; empty where it doesn't."""
    try:
        soc = find_soc(target, text).name
    except EXPECTED:
        return ""
    if target.kind == "soc":
        return soc if soc == target.name else ""
    literal = soc == LITERAL_FIRST_GENERATION == target.name
    return soc if soc in target.members or literal else ""


def check_request(request: Request, targets: Sequence[Target]) -> None:
    """Refuse options that mean nothing for the targets asked for.

    Raises :class:`UsageError`: CNV-2307 a ``--soc`` that is no part of any of them, CNV-2308 a ``--toolchain-version``
    that none of them has, CNV-2309 a ``--preprocess`` that none of their compilers takes, CNV-2312 a ``--gate-on``
    that is one of them.
    """
    named = ", ".join(target.name for target in targets)
    if request.soc and not any(part_of(target, request.soc) for target in targets):
        parts = [name for target in targets for name in (target.members or (target.name,))]
        raise UsageError(
            "CNV-2307",
            f"--soc {request.soc} is no part of {named}",
            hint=f"parts: {', '.join(parts[:12])}" if parts else "leave --soc out",
        )
    if request.toolchain_version:
        _check_version(request.toolchain_version, targets, named)
    if request.preprocess and not any(takes_preprocessing(target.backend) for target in targets):
        raise UsageError(
            "CNV-2309",
            f"--preprocess means nothing for {named}: no compiler of theirs prepares images",
            hint=f"it serves targets of {', '.join(PREPROCESSING)}; elsewhere put the preprocessing into the model",
        )
    if request.gate_on and find_target(request.gate_on) in targets:
        raise UsageError(
            "CNV-2312",
            f"--gate-on {request.gate_on} is the target itself",
            hint="name another target that judges the graph beforehand, such as migraphx-ref",
        )


def _check_version(text: str, targets: Sequence[Target], named: str) -> None:
    """At least one target must have such a toolchain version."""
    refusals = []
    for target in targets:
        vendor = all_vendors()[target.vendor]
        if target.backend in ("", "onnxruntime"):
            refusals.append(f"nothing is known of {vendor.toolchain or target.name} by version")
            continue
        try:
            known_version(vendor, text)
        except UnknownVersion as error:
            refusals.append(f"{error.message} ({error.hint})")
        else:
            return
    raise UsageError(
        "CNV-2308",
        f"--toolchain-version {text} means nothing for {named}: {'; '.join(dict.fromkeys(refusals))}",
        hint="leave it out, or give a version of the target's own toolchain; `convert ops list` shows them",
    )


def version_asked(target: Target, request: Request) -> str:
    """The ``--toolchain-version``, where this target has such a one; empty where it is meant for others."""
    if not request.toolchain_version or target.backend in ("", "onnxruntime"):
        return ""
    try:
        known_version(all_vendors()[target.vendor], request.toolchain_version)
    except UnknownVersion:
        return ""
    return request.toolchain_version


def takes_preprocessing(backend: str) -> bool:
    """Whether a backend's compiler prepares images itself."""
    if backend in BACKENDS or not knows_backend(backend):
        return backend in PREPROCESSING
    return bool(getattr(load_backend(backend), "preprocesses", False))


def judged_version(target: Target, asked: str, found: Toolchain | Missing | None) -> str:
    """The toolchain version that operators are judged for: asked for, else the one here, else the usual one (empty)."""
    vendor = all_vendors()[target.vendor]
    if asked:
        return asked
    if not isinstance(found, Toolchain) or target.backend == "onnxruntime" or not vendor.era:
        return ""
    try:
        return resolve_version(vendor, found.version)
    except UnknownVersion:
        return ""


def same_version(target: Target, asked: str, here: str) -> bool:
    """Whether a version that was asked for is the one that is here: ``8.1`` means ``8.1.RC1``, too."""
    vendor = all_vendors()[target.vendor]
    with contextlib.suppress(UnknownVersion):
        asked, here = resolve_version(vendor, asked), resolve_version(vendor, here)
    left, right = asked.casefold().split("."), here.casefold().split(".")
    short = min(len(left), len(right))
    return left[:short] == right[:short]


def parse_preprocess(text: str) -> str:
    """``--preprocess``, a JSON object or the path of a file with one, as canonical JSON.

    Raises :class:`UsageError` CNV-2309.
    """
    if not text:
        return ""
    try:
        if not text.lstrip().startswith("{"):
            text = read_start(Path(text), PREPROCESS_BYTES + 1).decode("utf-8")
        if len(text) > PREPROCESS_BYTES:
            raise _bad_preprocess(f"it is larger than {PREPROCESS_BYTES} bytes")
        document: Any = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise _bad_preprocess(str(error)) from error
    if not isinstance(document, dict):
        raise _bad_preprocess("it is no JSON object")
    return canonical_json(document).decode()


def _bad_preprocess(why: str) -> UsageError:
    return UsageError(
        "CNV-2309",
        f"--preprocess can't be read: {why}",
        hint='give a JSON object or a file with one, such as {"mean": [0.49, 0.46, 0.41], "std": [0.23, 0.22, 0.23]}',
    )


def other_version(found: Toolchain, asked: str) -> UsageError:
    """The error for a toolchain of another version than was asked for."""
    return UsageError(
        "CNV-2308",
        f"--toolchain-version {asked} was asked for, and {found.name} {found.version} is on this machine",
        hint="leave it out to compile here; for another machine's version run where no toolchain is, or use --dry-run",
    )


def worth_asking(request: Request, checked: CheckedGraph, found: Toolchain | Missing | None) -> bool:
    """Whether a conversion asks the toolkit before it compiles: where the support data leave a node unknown.

    ``--option precheck=yes`` asks always, ``no`` never. ``convert check`` always asks.
    """
    if not isinstance(found, Toolchain) or request.until == "plan":
        return False
    unknown = any(one.state == "unknown" for one in checked.support.judged)
    return {"yes": True, "no": False}.get(request.options.get(PRECHECK, ""), unknown)


def cannot_rehearse(target: Target, missing: ToolchainMissing) -> ToolchainMissing:
    """The error for ``--gate-on`` a target that can't be compiled for, or run, on this machine.

    What is missing is that target's; a bundle of it would not go on with the conversion that was asked for.
    """
    lacking = missing.message.partition("; everything before the compiler")[0]
    install = missing.hint.rpartition("; or here: ")[2]
    return ToolchainMissing(
        "CNV-6004",
        f"--gate-on {target.name} can't judge here: {lacking}; nothing was compiled for the target itself",
        hint=f"leave --gate-on out (the forecast judges without a toolchain), or give one that runs here, such as cpu;"
        f" for {target.name}: {install}",
    )


def unsupported(checked: CheckedGraph, *, strict: bool) -> UnsupportedOps:
    """The error that lists every refused operator of a graph at once."""
    states = {"refused", "unknown", "risk"} if strict else {"refused"}
    refused = [one for one in checked.support.judged if one.state in states]
    kinds: dict[str, list[str]] = {}
    for one in refused:
        kinds.setdefault(f"{one.op} ({one.reason})", []).append(one.node)
    listed = "; ".join(kind + _named(nodes) for kind, nodes in kinds.items())
    hints = sorted({one.hint for one in refused if one.hint})
    return UnsupportedOps(
        "CNV-5001",
        f"{checked.target} does not take {len(refused)} of {checked.support.nodes} nodes: {listed}",
        hint="; ".join(hints) or "`convert matrix MODEL` shows which targets can take it",
    )


def _named(nodes: list[str]) -> str:
    names = [node for node in nodes if node]
    return f": {', '.join(names[:3])}{' …' if len(names) > 3 else ''}" if names else ""
