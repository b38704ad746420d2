"""The exact SoC of a target: asked for, or the machine's own card, or for the machine that compiles to say. Pure."""

from __future__ import annotations

import msgspec

from convert.backends.base import SOC, Toolchain
from convert.errors import UsageError
from convert.values import CompileOptions
from op_registry.errors import UnknownTarget
from op_registry.targets import LITERAL_FIRST_GENERATION, find_soc, members_of
from op_registry.values import Target
from op_registry.versions import in_range

NANO = "Ascend035"
"""Parts of this architecture take ``--mode=30`` and an ``.exeom``, which this backend does not make."""


class SocChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The SoC of a plan. ``soc`` is :data:`convert.backends.base.SOC` where only the compiling machine will know it."""

    soc: str
    arch: str
    members: tuple[str, ...] = ()
    how: str = ""


def choose_soc(target: Target, options: CompileOptions, toolchain: Toolchain, version: str) -> SocChoice:
    """Resolve the SoC.

    Raises :class:`UsageError`: CNV-2201 the toolchain is here and the SoC is not known, CNV-2202 it does not belong to
    the target, or this CANN does not know it.
    """
    members = members_of(target)
    arch = members[0].arch
    names = tuple(member.name for member in members)
    if options.soc:
        soc = _asked(target, options.soc, names)
        return _checked(SocChoice(soc=soc.name, arch=soc.arch, members=names, how="asked for"), soc, version)
    if target.kind == "soc":
        return _checked(SocChoice(soc=target.name, arch=arch, members=names, how="the target itself"), target, version)
    found = toolchain.details.get("soc", "")
    for member in members:
        if found == member.name:
            choice = SocChoice(soc=found, arch=member.arch, members=names, how="this machine's card")
            return _checked(choice, member, version)
    if toolchain.assumed:
        known = tuple(member.name for member in members if in_range(version, member.toolchains))
        if not known:
            raise _unknown_to_cann(target.name, members[0].toolchains, version)
        return SocChoice(soc=SOC, arch=arch, members=known, how="for the machine that compiles")
    raise UsageError(
        "CNV-2201",
        f"{target.name} is a family, and the exact SoC is not known: "
        + (f"this machine's card is {found}, which is none of it" if found else "no card tells it on this machine"),
        hint=f"--soc one of {', '.join(names[:12])}{' …' if len(names) > 12 else ''}"
        + (f"; for the first-generation part: --soc {found}" if found == LITERAL_FIRST_GENERATION else ""),
    )


def _asked(target: Target, text: str, names: tuple[str, ...]) -> Target:
    try:
        soc = find_soc(target, text)
    except UnknownTarget as error:
        raise UsageError("CNV-2202", f"{text} is no SoC that atc knows", hint=str(error.hint)) from error
    literal = text == target.name == LITERAL_FIRST_GENERATION
    if soc.name in names or literal:
        return soc
    raise UsageError(
        "CNV-2202",
        f"{soc.name} does not belong to {target.name}",
        hint=f"--soc one of {', '.join(names[:12])}{' …' if len(names) > 12 else ''}, or another --target",
    )


def _checked(choice: SocChoice, soc: Target, version: str) -> SocChoice:
    if soc.arch.startswith(NANO):
        raise UsageError(
            "CNV-2202",
            f"{soc.name} needs atc --mode=30, which makes another kind of file",
            hint="convert for a server or edge part; `convert targets` lists them",
        )
    if not in_range(version, soc.toolchains):
        raise _unknown_to_cann(soc.name, soc.toolchains, version)
    return choice


def _unknown_to_cann(name: str, versions: str, version: str) -> UsageError:
    return UsageError(
        "CNV-2202",
        f"CANN {version} does not know {name}; CANN {versions} does",
        hint="use a toolkit of those versions, or another target",
    )
