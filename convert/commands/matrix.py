"""``convert matrix MODEL``: every known target at once, in the terminal, as JSON and as an HTML page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from artifacts.render import echo, print_json, print_table
from convert.commands.options import MODEL, RUN, add_options
from convert.commands.targets import MARKS
from convert.guarding import guarded
from op_registry.survey import Matrix, without_members
from op_registry.targets import PRECISIONS, find_target


@click.command("matrix")
@click.argument("model", type=click.Path())
@click.option("--target", "-t", "targets", multiple=True, metavar="NAME", help="Only these targets; repeatable.")
@click.option("--all", "everything", is_flag=True, help="Members of families as rows of their own.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the matrix as one HTML page.")
@add_options(MODEL, RUN)
def command(
    model: str,
    targets: tuple[str, ...],
    everything: bool,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> None:
    """Judge MODEL for every card at once: runnable, with rewrites, or blocked and by what; and in which precisions.

    Asks the support data only, so no toolkit is needed. An ONNX file is judged as it stands; other formats are
    exported first.
    """
    from convert.surveying import survey_model

    wanted = [find_target(name).name for name in targets]
    options = {"strict": False, "toolchain_version": "", **given}
    found = survey_model(model, options, "survey_matrix", wanted, kind=Matrix, quiet=quiet, named=True)
    if html is not None:
        from convert.report.matrix import render_matrix

        with guarded("matrix", option="--html"):
            html.write_text(render_matrix(found), encoding="utf-8")
    if as_json:
        print_json(found, html=str(html) if html else None)
        return
    _print(found, everything=everything or bool(wanted))
    if html is not None:
        echo(f"page      {html}")


def _print(found: Matrix, *, everything: bool) -> None:
    rows = list(found.rows) if everything else [row for row in without_members(found.rows) if not row.rare]
    echo(f"{found.model}  {found.nodes} nodes at opset {found.opset}")
    print_table(
        ("target", "toolchain", "outcome", "opset", "in the way", *PRECISIONS),
        [
            (
                row.target,
                f"{row.toolchain} {row.toolchain_version}".strip(),
                row.outcome,
                str(row.best_opset or row.opset) + ("" if row.best_opset in (0, row.opset) else f" (has {row.opset})"),
                in_the_way(row),
                *(MARKS[row.precisions[name]] for name in PRECISIONS),
            )
            for row in rows
        ],
    )
    outcomes = [row.outcome for row in rows]
    echo(", ".join(f"{outcomes.count(name)} {name}" for name in dict.fromkeys(outcomes)))
    if len(rows) < len(found.rows):
        echo("families stand for their parts; --all lists every part")


def _blocker(item: Any) -> str:
    """An operator and how often, or what is wrong with the graph as a whole."""
    return item.reason if item.op == "(graph)" else f"{item.op} ×{item.nodes}"


def in_the_way(row: Any) -> str:
    """The operators that are refused, at risk or unknown, the worst first and shortened."""
    parts = []
    if row.outcome == "with rewrites":
        parts.append(f"bring it to opset {row.best_opset}")
    elif row.blocked_by:
        parts.append(", ".join(_blocker(item) for item in row.blocked_by[:4]))
    elif row.unknown:
        parts.append("unknown: " + ", ".join(row.unknown[:4]))
    if row.risks:
        parts.append("risk: " + ", ".join(row.risks[:4]))
    return "; ".join(parts)
