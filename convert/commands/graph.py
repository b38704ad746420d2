"""``convert graph lower | rewrite | lint MODEL``: the graph tools by themselves, on ONNX files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec

from artifacts.render import echo, print_table
from artifacts.scratch import temporary_folder
from convert.commands.options import require_utf8
from convert.errors import ExportError, UsageError
from convert.host import Limits, StageHost, WorkerDied
from convert.rewrites import RULES, load_rule
from convert.rewrites.base import NMS_SPLIT
from convert.settings import load_settings, stage_limits

T = TypeVar("T")
MODEL = click.argument("model", type=click.Path(path_type=Path))
OUT = click.option("--out", "-o", type=click.Path(path_type=Path), required=True, help="The file to write.")
JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group("graph")
def command() -> None:
    """Change or check an ONNX file by itself: another opset, a rewrite, a list of what is wrong with it."""


@command.command("lower")
@MODEL
@click.option("--opset", type=click.IntRange(11), required=True, help="The opset to bring the graph to.")
@OUT
@JSON
def lower(model: Path, opset: int, out: Path, as_json: bool) -> None:
    """Bring MODEL to another opset, up or down, without changing what it computes."""
    _check_out(model, out)
    _print_change(_call("lower_file", dict, str(model.absolute()), opset, str(out.absolute())), as_json)


@command.command("rewrite")
@MODEL
@click.option("--rule", "rules", multiple=True, metavar="NAME", help="A rewrite, or NAME:ARGUMENT; repeatable.")
@click.option("--list", "listed", is_flag=True, help="List the rewrites.")
@click.option("--out", "-o", type=click.Path(path_type=Path), help="The file to write.")
@JSON
def rewrite(model: Path, rules: tuple[str, ...], listed: bool, out: Path | None, as_json: bool) -> None:
    """Apply rewrites to MODEL, each proven with ONNX Runtime and undone where the numbers change."""
    if listed:
        _print_rules(as_json)
        return
    if not rules or out is None:
        raise UsageError("CNV-2010", "a rewrite needs --rule and --out", hint="`convert graph rewrite MODEL --list`")
    _check_out(model, out)
    _print_change(_call("rewrite_file", dict, str(model.absolute()), list(rules), str(out.absolute())), as_json)


@command.command("lint")
@MODEL
@JSON
def lint(model: Path, as_json: bool) -> int:
    """List everything that is wrong with MODEL in one go. Exits 4 where something of it is an error."""
    found = _call("lint_file", list, str(model.absolute()))
    errors = [one for one in found if one["level"] == "error"]
    if as_json:
        document = {"schema": 1, "model": str(model), "findings": found, "error": None}
        echo(msgspec.json.encode(document).decode())
    elif found:
        rows = [(one["level"], one["rule"], one["subject"], one["text"]) for one in found]
        print_table(("level", "rule", "subject", "what"), rows)
    else:
        echo(f"{model}: nothing is wrong")
    return ExportError.exit_code if errors else 0


def _check_out(model: Path, out: Path) -> None:
    if os.path.realpath(out) == os.path.realpath(model):
        raise UsageError("CNV-2010", f"--out {out} is the model itself", hint="write to another file")
    if not out.parent.is_dir():
        raise UsageError("CNV-2010", f"the folder of --out {out} is not there", hint="make the folder first")


def _call(function: str, kind: type[T], *args: Any) -> T:
    require_utf8(*(arg for arg in args if isinstance(arg, str)))
    with temporary_folder("convert-graph") as folder, StageHost(Path(folder) / "log") as host:
        try:
            with host.worker() as worker:
                limits = Limits(**stage_limits(load_settings({})))
                answer = worker.call(f"convert.stages.graph_tools:{function}", *args, limits=limits)
        except WorkerDied as death:
            raise ExportError(
                "CNV-4090",
                f"the graph tool ended its process: {death.cause}",
                hint="native code crashed on this file; check it with onnx.checker",
            ) from death
        return msgspec.json.decode(answer.value, type=kind)


def _print_change(change: dict[str, Any], as_json: bool) -> None:
    if as_json:
        echo(msgspec.json.encode({"schema": 1, **change, "error": None}).decode())
        return
    echo(
        f"{change['out']}: opset {change['opset_before']} → {change['opset']},"
        f" {change['nodes_before']} → {change['nodes']} nodes"
    )
    for one in change["applied"]:
        echo(f"applied  {one['name']}: {', '.join(one['nodes'])}")
    for one in change["undone"]:
        echo(f"undone   {one['name']}: {one['reason']}")
    if change["host"]:
        echo(f"host     {change['host']}: run it on {', '.join(change['cut'])}")


def _print_rules(as_json: bool) -> None:
    rows = [*((name, load_rule(name).title) for name in RULES), NMS_SPLIT]
    if as_json:
        echo(msgspec.json.encode({"schema": 1, "rewrites": dict(rows)}).decode())
    else:
        print_table(("rewrite", "what it does"), rows)
