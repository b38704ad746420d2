"""The picture of a forecast as inline SVG: the error along the graph, node by node, on a logarithmic scale.

Only numbers go into the markup, so nothing in it needs escaping; colours come from the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

from convert.values import NodeForecast

WIDTH, HEIGHT = 920, 300
LEFT, RIGHT, TOP, BOTTOM = 56, 14, 16, 40
INNER_W, INNER_H = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
LOW, HIGH = -8.0, 1.0
"""The scale's ends, as powers of ten; an error without measure stands at the top."""
COLUMNS = 430
"""Nodes are drawn in at most this many columns, each with the worst of its nodes."""
BROKEN = 1e8


def along(nodes: Sequence[NodeForecast], guilty: Collection[str], limit: float | None) -> str:
    """Error carried (line), error made (bars) and the guilty nodes (dots) over the graph. Empty without nodes."""
    if not nodes:
        return ""
    width = min(COLUMNS, len(nodes))
    columns: list[list[NodeForecast]] = [[] for _ in range(width)]
    for place, node in enumerate(nodes):
        columns[place * width // len(nodes)].append(node)
    parts = [*_axes(len(nodes)), *_gate(limit), *_bars(columns), _line(columns), *_dots(columns, guilty)]
    words = f"Error along the {len(nodes)} nodes of the graph, {len(guilty)} of them guilty"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{words}">{"".join(parts)}</svg>'


def _y(error: float) -> float:
    if error >= BROKEN:
        return float(TOP)
    exponent = math.log10(error) if error > 0.0 else LOW
    share = (min(max(exponent, LOW), HIGH) - LOW) / (HIGH - LOW)
    return TOP + 8 + (INNER_H - 8) * (1.0 - share)


def _x(column: float, count: int) -> float:
    return LEFT + INNER_W * (column + 0.5) / count


def _bars(columns: Sequence[Sequence[NodeForecast]]) -> Iterator[str]:
    width = max(1.0, INNER_W / len(columns) - 0.6)
    for place, nodes in enumerate(columns):
        made = max((node.made for node in nodes), default=0.0)
        if made > 10.0**LOW:
            y = _y(made)
            x = _x(place, len(columns)) - width / 2
            yield f'<rect class="bar" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{TOP + INNER_H - y:.1f}"/>'


def _line(columns: Sequence[Sequence[NodeForecast]]) -> str:
    points = [
        f"{_x(place, len(columns)):.1f},{_y(max((node.passed for node in nodes), default=0.0)):.1f}"
        for place, nodes in enumerate(columns)
    ]
    return f'<polyline class="carried" points="{" ".join(points)}"/>'


def _dots(columns: Sequence[Sequence[NodeForecast]], guilty: Collection[str]) -> Iterator[str]:
    for place, nodes in enumerate(columns):
        blamed = [node for node in nodes if node.node in guilty]
        if blamed:
            error = max(max(node.passed, node.made) for node in blamed)
            yield f'<circle class="guilty" cx="{_x(place, len(columns)):.1f}" cy="{_y(error):.1f}" r="4"/>'


def _gate(limit: float | None) -> Iterator[str]:
    if limit:
        y = _y(limit)
        yield f'<line class="limit" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield f'<text class="limit-text" x="{LEFT + 4}" y="{y - 4:.1f}">gate</text>'


def _axes(count: int) -> Iterator[str]:
    bottom = TOP + INNER_H
    yield f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>'
    for exponent in range(math.ceil(LOW), math.floor(HIGH) + 1, 2):
        y = _y(10.0**exponent)
        label = "1" if exponent == 0 else f"1e{exponent}"
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield f'<text text-anchor="end" x="{LEFT - 6}" y="{y + 4:.1f}">{label}</text>'
    yield f'<text text-anchor="end" x="{LEFT - 6}" y="{TOP + 4}">broken</text>'
    for share in (0.0, 0.5, 1.0):
        x = LEFT + INNER_W * share
        yield f'<text text-anchor="middle" x="{x:.1f}" y="{bottom + 15}">{round(share * (count - 1)) + 1}</text>'
    middle = LEFT + INNER_W / 2
    words = "node, in the order of the graph"
    yield f'<text class="name" text-anchor="middle" x="{middle:.1f}" y="{HEIGHT - 5}">{words}</text>'
