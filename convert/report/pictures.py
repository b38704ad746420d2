"""Pictures of one output as inline SVG: how large the errors are, and artifact against reference.

Only numbers go into the markup, so nothing in it needs escaping; colours come from the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from convert.metrics import OutputPicture

WIDTH, HEIGHT = 340, 210
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 10, 38
INNER_W, INNER_H = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM


def histogram(picture: OutputPicture, limit: float | None) -> str:
    """Elements by size of their error, relative to the RMS of the reference; ``limit``: the gate's relative L2.

    Empty where no element differs. Heights are logarithmic, so that a single element that is far off can be seen.
    """
    total = sum(picture.counts) + picture.equal
    if not total or not any(picture.counts):
        return ""
    parts = [*_error_axis(picture), *_bars(picture)]
    parts += _mark(picture, picture.error, "mean", "RMS", left=bool(limit and limit > picture.error))
    parts += _mark(picture, limit or 0.0, "limit", "gate", left=bool(limit and limit <= picture.error))
    return _svg(f"Histogram of the errors: {_words(picture, total)}", parts)


def _mark(picture: OutputPicture, error: float, style: str, words: str, *, left: bool) -> Iterator[str]:
    """A line at an error, with its name on one side."""
    if not error > 0.0:
        return
    x = _error_x(picture, math.log10(error))
    side, shift = ("end", -4) if left else ("start", 4)
    yield f'<line class="{style}" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + INNER_H}"/>'
    yield f'<text class="{style}-text" text-anchor="{side}" x="{x + shift:.1f}" y="{TOP + 10}">{words}</text>'


def _words(picture: OutputPicture, total: int) -> str:
    """The histogram in words, for those who can't see it."""
    if picture.equal * 2 >= total:
        return f"{picture.equal} of {total} elements are equal"
    seen = picture.equal
    for place, count in enumerate(picture.counts):
        seen += count
        if seen * 2 >= total:
            edge = picture.low + (place + 1) * (picture.high - picture.low) / len(picture.counts)
            return f"half of the {total} elements are off by less than {10**edge:.1g} of the typical size"
    return f"{total} elements"


def _error_x(picture: OutputPicture, exponent: float) -> float:
    share = (exponent - picture.low) / (picture.high - picture.low)
    return LEFT + INNER_W * min(1.0, max(0.0, share))


def _bars(picture: OutputPicture) -> Iterator[str]:
    highest = math.log1p(max(picture.counts))
    width = INNER_W / len(picture.counts)
    for place, count in enumerate(picture.counts):
        if count:
            height = max(1.5, INNER_H * math.log1p(count) / highest)
            x, y = LEFT + place * width, TOP + INNER_H - height
            yield f'<rect class="bar" x="{x + 0.5:.1f}" y="{y:.1f}" width="{width - 1:.1f}" height="{height:.1f}"/>'


def _error_axis(picture: OutputPicture) -> Iterator[str]:
    yield f'<line class="axis" x1="{LEFT}" y1="{TOP + INNER_H}" x2="{WIDTH - RIGHT}" y2="{TOP + INNER_H}"/>'
    for exponent in range(math.ceil(picture.low), math.floor(picture.high) + 1, 2):
        x = _error_x(picture, exponent)
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + INNER_H}"/>'
        label = "1" if exponent == 0 else "100" if exponent == 2 else f"1e{exponent}"
        yield f'<text text-anchor="middle" x="{x:.1f}" y="{TOP + INNER_H + 15}">{label}</text>'
    for share, value in ((1.0, max(picture.counts)), (0.5, math.expm1(math.log1p(max(picture.counts)) / 2))):
        y = TOP + INNER_H * (1 - share)
        yield f'<text text-anchor="end" x="{LEFT - 6}" y="{y + 8:.1f}">{_count(value)}</text>'
    yield _axis_name("error / RMS of the reference")


def _axis_name(words: str) -> str:
    return f'<text class="name" text-anchor="middle" x="{LEFT + INNER_W / 2:.1f}" y="{HEIGHT - 5}">{words}</text>'


def _count(value: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{letter}"
    return f"{value:.0f}"


def scatter(picture: OutputPicture) -> str:
    """Some elements, reference across and artifact up, with the line on which both are equal. Empty without any."""
    if not picture.points:
        return ""
    low = min(min(point) for point in picture.points)
    high = max(max(point) for point in picture.points)
    margin = (high / 2 - low / 2) * 0.08 or abs(high) * 0.1 or 1.0
    low, high = low - margin, high + margin
    span = high / 2 - low / 2

    def place(x: float, y: float) -> tuple[float, float]:
        return LEFT + INNER_W * ((x / 2 - low / 2) / span), TOP + INNER_H * (1 - (y / 2 - low / 2) / span)

    parts = [*_value_axes(low + margin, high - margin, low, span)]
    start, end = place(low, low), place(high, high)
    parts.append(f'<line class="equal" x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{end[0]:.1f}" y2="{end[1]:.1f}"/>')
    spots = sorted({(round(a, 1), round(b, 1)) for a, b in (place(*point) for point in picture.points)})
    parts += [f'<circle class="dot" cx="{x:g}" cy="{y:g}" r="2.4"/>' for x, y in spots]
    words = f"Scatter of {len(picture.points)} elements of sample {picture.sample}, artifact against reference"
    return _svg(words, parts)


def _value_axes(first: float, last: float, low: float, span: float) -> Iterator[str]:
    bottom = TOP + INNER_H
    yield f'<path class="axis" d="M{LEFT} {TOP}V{bottom}H{WIDTH - RIGHT}"/>'
    for value, anchor in ((first, "start"), (last, "end")):
        share = (value / 2 - low / 2) / span
        x, y = LEFT + INNER_W * share, bottom - INNER_H * share
        yield f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{bottom}"/>'
        yield f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>'
        yield f'<text text-anchor="{anchor}" x="{x:.1f}" y="{bottom + 15}">{value:.3g}</text>'
        yield f'<text text-anchor="end" x="{LEFT - 6}" y="{y + 4:.1f}">{value:.3g}</text>'
    middle = TOP + INNER_H / 2
    yield _axis_name("reference")
    yield f'<text class="name" text-anchor="middle" transform="translate(12 {middle:.0f}) rotate(-90)">artifact</text>'


def _svg(words: str, parts: list[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{words}">{"".join(parts)}</svg>'
