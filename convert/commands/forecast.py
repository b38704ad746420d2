"""``convert forecast MODEL --precision P``: what a precision will do to the numbers, before any compiler runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from artifacts.render import echo, print_json, print_table
from convert.commands.options import MODEL, RUN, add_options, request_from
from convert.commands.show import progress
from convert.gate import parse_gate
from convert.report.text import metrics_table, range_text, shown
from convert.settings import load_settings, parse_bytes
from convert.values import Forecast, ForecastOptions, NodeForecast

if TYPE_CHECKING:
    from convert.forecasting import Forecasted

LISTED = 12
MANY = 1e8
"""Errors from here on have no measure: infinite or NaN where there was a number."""


@click.command("forecast")
@click.argument("model", type=click.Path())
@click.option(
    "--precision", "-p", type=click.Choice(["fp16", "bf16", "int8", "mixed"]), required=True, help="What to forecast."
)
@click.option("--target", "-t", metavar="NAME", help="The card: its graph is forecast, and summed as it sums.")
@click.option("--gate", "gates", multiple=True, metavar="METRIC=VALUE", help="Replace a threshold of the gate.")
@click.option("--no-plan", is_flag=True, help="Do not look for the nodes to keep in fp32.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write the forecast as one HTML page.")
@add_options(MODEL, RUN)
def command(
    model: str,
    *,
    precision: Any,
    target: str | None,
    gates: tuple[str, ...],
    no_plan: bool,
    html: Path | None,
    as_json: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Forecast what a precision does to MODEL's outputs, and which nodes are to blame.

    The fp32 graph runs on the samples exactly and with every stored value rounded; no toolkit is needed. Exits 0 where
    the gate holds, 8 where it does not.
    """
    from convert.forecasting import forecast_failed, forecast_model

    settings = load_settings({name: given[name] for name in ("timeout", "memory", "jobs")})
    options = ForecastOptions(
        precision=precision,
        gate=parse_gate(gates),
        plan=not no_plan,
        memory=parse_bytes(given["memory"]) if given["memory"] else 0,
    )
    options_of_run = {**given, "targets": (target,) if target else (), "soc": "", "strict": False}
    request = request_from(model, {"toolchain_version": "", **options_of_run}, until="check")
    with progress(quiet=quiet) as listener:
        found = forecast_model(request, settings, options, listener)
    error = None if found.forecast.holds else forecast_failed(found.forecast, Path(model).name)
    if html is not None:
        _write_page(found, html)
    if as_json:
        ended = {"html": str(html) if html else None, "error": error.as_json() if error else None}
        print_json(as_document(found) | ended)
        return error.exit_code if error else 0
    _print(found)
    if html is not None:
        echo(f"page      {html}")
    if error:
        raise error
    return 0


def _write_page(found: Forecasted, html: Path) -> None:
    from convert.guarding import guarded
    from convert.report.forecast import render_forecast

    with guarded("forecast", option="--html"):
        html.write_text(render_forecast(found), encoding="utf-8")


def as_document(found: Forecasted) -> dict[str, Any]:
    """What ``--json`` prints."""
    forecast = found.forecast
    return {
        "schema": 1,
        "model": {"path": found.model.path, "format": found.model.format, "sha256": found.model.sha256},
        "target": found.target or None,
        "precision": forecast.precision,
        "holds": forecast.holds,
        "plan_holds": forecast.plan_holds,
        "samples": forecast.samples,
        "evaluations": forecast.evaluations,
        "outputs": [msgspec.to_builtins(output) for output in forecast.outputs],
        "planned": [msgspec.to_builtins(output) for output in forecast.planned],
        "guilty": [node_document(node) for node in forecast.guilty],
        "keep": list(forecast.keep),
        "nodes": [msgspec.to_builtins(node) for node in found.table],
        "notes": [msgspec.to_builtins(note) for note in forecast.notes],
    }


def node_document(node: NodeForecast) -> dict[str, Any]:
    """A guilty node, its gravest finding as ``reason``."""
    return {**msgspec.to_builtins(node), "reason": node.reasons[0] if node.reasons else ""}


def _print(found: Forecasted) -> None:
    forecast = found.forecast
    subject = f"{Path(found.model.path).stem} → {found.target}" if found.target else Path(found.model.path).stem
    verdict = "holds" if forecast.holds else "DOES NOT HOLD"
    samples = f"{forecast.samples} sample{'' if forecast.samples == 1 else 's'} ({found.sampled})"
    echo(f"{subject}  {forecast.precision}  {verdict}  {found.nodes} nodes, {samples}")
    echo(metrics_table(forecast.outputs))
    if forecast.guilty:
        echo("worst nodes first")
        print_table(
            ("node", "operator", "module", "range", "made", "arriving", "at the outputs", "why"),
            [_row(node) for node in forecast.guilty[:LISTED]],
        )
        if len(forecast.guilty) > LISTED:
            echo(f"and {len(forecast.guilty) - LISTED} more; --json has all")
    _print_plan(forecast)
    for note in forecast.notes:
        echo(f"{note.level}: {shown(note.text)}")


def _print_plan(forecast: Forecast) -> None:
    if forecast.plan_holds and forecast.keep:
        names = ", ".join(shown(name) for name in forecast.keep[:LISTED])
        more = f" and {len(forecast.keep) - LISTED} more" if len(forecast.keep) > LISTED else ""
        echo(f"plan      keep {len(forecast.keep)} in fp32: {names}{more}")


def _row(node: NodeForecast) -> tuple[str, ...]:
    effect = max(node.effect.values(), default=0.0)
    return (
        shown(node.node),
        node.op,
        shown(node.module),
        range_text(node, 3),
        error_text(node.made),
        error_text(node.arriving),
        error_text(effect) if node.effect else "",
        shown("; ".join(node.reasons[:2])),
    )


def error_text(value: float) -> str:
    """A relative error for people; one without measure in words."""
    return "broken" if value >= MANY else f"{value:.2g}"
