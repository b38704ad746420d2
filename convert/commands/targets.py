"""``convert targets``: every card and SoC, with precisions, opsets and toolchain."""

from __future__ import annotations

import click

from artifacts.render import echo, json_option, print_json, print_table
from op_registry.targets import PRECISIONS, all_targets, find_target, is_rare, members_of
from op_registry.values import PrecisionState, Target
from op_registry.vendors import all_vendors, find_vendor

MARKS: dict[PrecisionState, str] = {"yes": "yes", "partial": "part", "no": "no", "unknown": "?"}


@click.command("targets")
@click.argument("name", required=False)
@click.option("--vendor", metavar="NAME", help="Only this vendor.")
@click.option("--all", "everything", is_flag=True, help="Parts of families, too, and parts of which little is public.")
@json_option
def command(name: str | None, vendor: str | None, everything: bool, as_json: bool) -> None:
    """List the targets, or show one: aliases, members, memory, precisions and where the facts come from."""
    if name:
        _show(find_target(name), as_json=as_json)
        return
    wanted = find_vendor(vendor).name if vendor else ""
    chosen = [target for target in all_targets() if wanted in ("", target.vendor)]
    if as_json:
        print_json({"targets": [_plain(target) for target in chosen]})
        return
    if not everything:
        chosen = [target for target in without_members(chosen) if not is_rare(target)]
    rows = [
        (
            target.name,
            target.vendor,
            target.backend or "–",
            f"{len(target.members)} parts" if target.members else "",
            *(MARKS[target.precisions[precision]] for precision in PRECISIONS),
            target.default_precision,
            _opsets(target),
        )
        for target in chosen
    ]
    print_table(("target", "vendor", "backend", "family", *PRECISIONS, "default", "opsets"), rows)


def without_members(targets: list[Target]) -> list[Target]:
    """Families, and the parts that belong to none."""
    members = {(target.vendor, member) for target in targets for member in target.members}
    return [target for target in targets if target.kind == "family" or (target.vendor, target.name) not in members]


def _opsets(target: Target) -> str:
    return f"{target.opset_min}–{target.opset_max or 'newest'}"


def _plain(target: Target) -> dict[str, object]:
    return {
        "name": target.name,
        "vendor": target.vendor,
        "backend": target.backend or None,
        "kind": target.kind,
        "members": list(target.members),
        "aliases": list(target.aliases),
        "arch": target.arch,
        "precisions": target.precisions,
        "default_precision": target.default_precision,
        "opset_min": target.opset_min,
        "opset_max": target.opset_max or None,
        "opset_default": target.opset_default,
        "memory": target.memory or None,
        "toolchain": all_vendors()[target.vendor].toolchain,
        "toolchain_versions": target.toolchains or None,
        "notes": list(target.notes),
        "sources": list(target.sources),
    }


def _show(target: Target, *, as_json: bool) -> None:
    if as_json:
        print_json({"target": _plain(target)})
        return
    vendor = all_vendors()[target.vendor]
    echo(f"{target.name}  {vendor.title}  {vendor.toolchain} {target.toolchains}".rstrip())
    facts = {
        "backend": target.backend or "no public compiler takes ONNX",
        "parts": ", ".join(part.name for part in members_of(target)) if target.kind == "family" else "",
        "aliases": ", ".join(target.aliases),
        "built for": target.arch,
        "precisions": ", ".join(f"{name} {state}" for name, state in target.precisions.items()),
        "default": target.default_precision,
        "opsets": _opsets(target),
        "memory": target.memory,
        "note": "; ".join(target.notes),
        "source": "; ".join(target.sources),
    }
    for label, text in facts.items():
        if text:
            echo(f"  {label:11} {text}")
