"""``convert ops list | show | diff | coverage | learn``: the operator support data, asked and extended."""

from __future__ import annotations

import fnmatch
from pathlib import Path
from typing import Any

import click

from artifacts.cli import LazyGroup
from artifacts.errors import UsageError
from artifacts.render import echo, json_option, print_json, print_table
from convert.commands.options import MODEL, RUN, add_options
from op_registry.overlay import merged, overlay_path, read_overlay, write_overlay
from op_registry.query import OpEntry, diff_ops, list_ops, parse_side, show_op
from op_registry.tables import format_opsets
from op_registry.targets import find_target
from op_registry.values import STATES
from op_registry.vendors import find_vendor

COMMANDS = {
    "list": ("convert.commands.ops:list_command", "Every operator of a vendor's toolchain version."),
    "show": ("convert.commands.ops:show_command", "OP: one operator at every vendor, with its rules and sources."),
    "diff": ("convert.commands.ops:diff_command", "A B: two toolchain versions, parts or vendors compared."),
    "coverage": ("convert.commands.ops:coverage_command", "MODEL: how much of it each toolchain version takes."),
    "learn": ("convert.commands.ops:learn_command", "SOURCE: fill this site's overlay from a toolkit or a log."),
}


@click.group("ops", cls=LazyGroup, table=COMMANDS)
def command() -> None:
    """What each vendor's toolchain takes, how we know, and what this site knows better."""


@click.command("list")
@click.option("--vendor", metavar="NAME", help="The vendor; left out where --target is given.")
@click.option("--toolchain-version", default="", metavar="V", help="The toolchain version (default: the vendor's).")
@click.option("--target", metavar="NAME", help="As one card or SoC runs it.")
@click.option("--state", type=click.Choice(STATES), help="Only operators of this state.")
@click.option("--match", metavar="PATTERN", default="*", help="Only operators whose name fits, such as 'Reduce*'.")
@json_option
def list_command(
    vendor: str | None, toolchain_version: str, target: str | None, state: str | None, match: str, as_json: bool
) -> None:
    """List the operators of a toolchain version: opsets, state, how we know, source."""
    if not vendor and not target:
        raise UsageError("CNV-2000", "whose operators?", hint="add --vendor NAME or --target NAME")
    card = find_target(target) if target else None
    listed = list_ops(vendor or (card.vendor if card else ""), toolchain_version, target=card, site=read_overlay())
    chosen = tuple(
        entry
        for entry in listed.ops
        if state in (None, entry.state) and fnmatch.fnmatchcase(entry.op.casefold(), match.casefold())
    )
    if as_json:
        print_json(listed, ops=[_entry_json(entry) for entry in chosen])
        return
    echo(f"{find_vendor(listed.vendor).toolchain} {listed.toolchain_version}  {len(chosen)} entries")
    rows = [(_title(e), _where(e), e.state, e.grade, e.note or e.source) for e in chosen]
    print_table(("operator", "opsets", "state", "grade", "note or source"), rows)


def _entry_json(entry: OpEntry) -> dict[str, object]:
    return {
        "domain": entry.domain,
        "op": entry.op,
        "opsets": list(entry.opsets),
        "any_opset": entry.any_opset,
        "state": entry.state,
        "grade": entry.grade,
        "source": entry.source,
        "note": entry.note,
        "runs_as": entry.runs_as,
    }


def _title(entry: OpEntry) -> str:
    return f"{entry.domain}::{entry.op}" if entry.domain else entry.op


def _where(entry: OpEntry) -> str:
    return "any" if entry.any_opset else format_opsets(entry.opsets) or "–"


@click.command("show")
@click.argument("op")
@click.option("--at", "versions", multiple=True, metavar="VENDOR@V", help="Ask a vendor's other version; repeatable.")
@json_option
def show_command(op: str, versions: tuple[str, ...], as_json: bool) -> None:
    """Show one operator (OP or domain::OP) at every vendor: opsets, engines, rules, second evidence."""
    sides = [parse_side(text) for text in versions]
    shown = show_op(op, {side.vendor: side.toolchain_version for side in sides}, site=read_overlay())
    if as_json:
        print_json(shown)
        return
    echo(shown.op)
    rows = [
        (f"{v.title} ({v.toolchain} {v.toolchain_version})", _where(e), e.state, e.grade, e.note or e.source)
        for v in shown.vendors
        for e in v.entries
    ]
    print_table(("vendor", "opsets", "state", "grade", "note or source"), rows)
    rules = [
        (v.vendor, r.opsets, r.state, r.when or "always", r.reason, r.hint) for v in shown.vendors for r in v.rules
    ]
    if rules:
        print_table(("vendor", "opsets", "state", "when", "reason", "what to do"), rules)
    engines = [
        (k.name, " ".join(sorted(k.aicore)) or "–", "yes" if k.aicpu else "no", "yes" if k.host else "no")
        for v in shown.vendors
        for k in v.kernels
        if k.known
    ]
    if engines:
        print_table(("runs as", "AI Core on", "AI CPU", "host"), engines)
    if shown.evidence:
        print_table(
            ("provider of ONNX Runtime", "lists it", "mode", "source"),
            [(e.provider, e.listed, e.modes, e.source) for e in shown.evidence],
        )


@click.command("diff")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--vendor", default="", metavar="NAME", help="Whose versions A and B are, where they are bare versions.")
@json_option
def diff_command(before: str, after: str, vendor: str, as_json: bool) -> None:
    """Compare two sides: a vendor, a card or SoC, each with @VERSION or without (ascend@8.5 Ascend310P3@9.2)."""
    result = diff_ops(parse_side(before, vendor), parse_side(after, vendor), site=read_overlay())
    if as_json:
        print_json(result)
        return
    rows = [(c.kind, f"{c.domain}::{c.op}" if c.domain else c.op, c.before, c.after) for c in result.changes]
    print_table(("", "operator", before, after), rows)
    echo(f"{len(rows)} operators differ, {result.same} are taken alike")


@click.command("coverage")
@click.argument("model", type=click.Path())
@click.option("--vendor", "vendors", multiple=True, metavar="NAME", help="Only these vendors; repeatable.")
@add_options(MODEL, RUN)
def coverage_command(model: str, vendors: tuple[str, ...], as_json: bool, quiet: bool, **given: Any) -> None:
    """Show how much of MODEL each toolchain version takes, at the opset that the graph has."""
    from convert.surveying import survey_model
    from op_registry.survey import CoverageRow

    names = [find_vendor(name).name for name in vendors]
    options = _survey_options(given)
    rows = survey_model(model, options, "survey_coverage", names, kind=tuple[CoverageRow, ...], quiet=quiet)
    if as_json:
        print_json({"model": model, "coverage": rows})
        return
    shown = [
        (row.vendor, row.toolchain_version, f"{row.taken:.0%}", _counts(row.counts), ", ".join(row.refused_ops[:6]))
        for row in rows
    ]
    print_table(("vendor", "version", "taken", "nodes", "refused"), shown)


def _survey_options(given: dict[str, Any]) -> dict[str, Any]:
    return {"strict": False, "toolchain_version": "", **given}


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {state}" for state, count in counts.items())


@click.command("learn")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--vendor", default="", metavar="NAME", help="Whose list it is, where the content doesn't tell.")
@click.option("--toolchain-version", default="", metavar="V", help="The toolchain version that SOURCE is of.")
@click.option("--target", metavar="NAME", help="The card or SoC that a log was made for.")
@click.option("--overlay", type=click.Path(path_type=Path), help="The overlay file.  [default: $CONVERT_OPS_OVERLAY]")
@click.option("--dry-run", is_flag=True, help="Show what would be learned, and write nothing.")
@json_option
def learn_command(
    source: Path,
    vendor: str,
    toolchain_version: str,
    target: str | None,
    overlay: Path | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Learn from SOURCE: an installed CANN (folder), ATC's check_result.json, a compile log, or the saved output of
    `migraphx-driver onnx -l`. What is learned goes into this site's overlay, with the grade "site"."""
    from op_registry.learn import learn

    card = find_target(target) if target else None
    path = overlay or overlay_path()
    site = read_overlay(path)
    learned = learn(source, vendor=vendor, version=toolchain_version, target=card, site=site)
    if not dry_run:
        write_overlay(merged(site, learned.lines), path)
    if as_json:
        print_json(learned, overlay=None if dry_run else str(path))
        return
    rows = [
        (line.state, f"{line.domain}::{line.op}".removeprefix("::"), line.opsets, line.when or line.note)
        for line in learned.lines
    ]
    print_table(("state", "operator", "opsets", "note"), rows)
    for note in learned.notes:
        echo(f"note: {note}", err=True)
    echo(f"{learned.kind}, {learned.vendor} {learned.toolchain_version}: {len(rows)} lines, {learned.agree} as known")
    echo("nothing written" if dry_run else f"written to {path}")
