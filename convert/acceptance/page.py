"""``render_acceptance``: an acceptance as one HTML page that needs nothing else: no network, no script."""

from __future__ import annotations

from functools import cache
from typing import Any

from artifacts.render import size_text
from convert.acceptance.values import Acceptance, Speed
from convert.metrics import OutputMetrics

BADGES = {
    "passed": "good",
    "handled": "good",
    "failed": "bad",
    "not-judged": "fair",
    "not-injected": "plain",
    "skipped": "plain",
}


def render_acceptance(report: Acceptance) -> str:
    """The page. Names come from strangers: the template escapes every text."""
    from markupsafe import Markup

    template, style = _template()
    return str(
        template.render(
            style=Markup(style),
            report=report,
            size=size_text(report.bytes),
            badges=BADGES,
            outputs=[_row(output) for output in report.accuracy.outputs] if report.accuracy else [],
            speed=speed_facts(report.speed) if report.speed else [],
            differing=[_row(output) for output in report.soak.worst] if report.soak else [],
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
    return environment.get_template("acceptance.html.j2"), style


def _row(output: OutputMetrics) -> dict[str, Any]:
    cells = {
        "cosine": output.cosine,
        "worst-row cosine": output.worst_row_cosine,
        "relative L2": output.rel_l2,
        "norm ratio": output.norm_ratio,
        "max abs": output.max_abs,
        "exact match": output.exact_match,
    }
    metrics = [(words, f"{value:.7g}") for words, value in cells.items() if value is not None]
    return {"output": output, "metrics": metrics}


def speed_facts(speed: Speed) -> list[tuple[str, str]]:
    """The numbers of a speed that were measured, in words."""
    times = {"median": speed.p50, "p90": speed.p90, "p99": speed.p99, "mean": speed.mean, "slowest": speed.most}
    told = [(words, f"{value:.3g} ms") for words, value in times.items() if value]
    return [*told, ("runs a second", f"{speed.per_second:.4g}"), ("runs", str(speed.runs))]
