"""``render_forecast``: a forecast as one HTML page that needs nothing else: no network, no script."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from convert.gate import THRESHOLDS
from convert.report.along import BROKEN, along
from convert.report.text import range_text
from convert.values import NodeForecast

if TYPE_CHECKING:
    from convert.forecasting import Forecasted

LISTED = 40


def render_forecast(found: Forecasted) -> str:
    """The page. Names come from strangers: the template escapes every text."""
    from markupsafe import Markup

    forecast = found.forecast
    template, style = _template()
    picture = along(found.table, {node.node for node in forecast.guilty}, THRESHOLDS[forecast.precision].rel_l2)
    return str(
        template.render(
            style=Markup(style),
            title=Path(found.model.path).name,
            found=found,
            forecast=forecast,
            badge="good" if forecast.holds else "fair" if forecast.plan_holds else "bad",
            picture=Markup(picture),
            guilty=[_row(node) for node in forecast.guilty[:LISTED]],
            more=max(0, len(forecast.guilty) - LISTED),
            error=_error,
        )
    )


@cache
def _template() -> tuple[Any, str]:
    import jinja2

    loader = jinja2.PackageLoader("convert", "report")
    environment = jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    style, _, _ = loader.get_source(environment, "report.css")
    return environment.get_template("forecast.html.j2"), style


def _row(node: NodeForecast) -> dict[str, Any]:
    return {
        "node": node,
        "facts": [
            ("range", range_text(node, 4)),
            ("overflow", f"{node.overflow:.2%}" if node.overflow else "none"),
            ("below normal", f"{node.flushed:.2%}" if node.flushed else "none"),
            ("made here", _error(node.made)),
            ("arriving", _error(node.arriving)),
            ("carried on", _error(node.passed)),
            *((f"left at {name}", _error(value)) for name, value in node.effect.items()),
        ],
    }


def _error(value: float | None) -> str:
    if value is None:
        return "–"
    return "broken" if value >= BROKEN else f"{value:.3g}"
