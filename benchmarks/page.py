"""What the bench found, as Markdown and as one HTML page with pictures (inline SVG, nothing from elsewhere)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape

from benchmarks.measure import Bars, Grid, Part, Row

WIDTH, LABEL, LINE = 760, 330, 22
ROWS = ("what", "ours", "base", "unit", "ratio", "bound")
STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0;width:100%}th,td{border-bottom:1px solid #ddd;padding:.3rem .5rem;
text-align:left;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}.ok{color:#0a7a33}
.no{color:#b3261e;font-weight:600}svg{max-width:100%;height:auto}text{font:13px system-ui,sans-serif;fill:#222}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}text{fill:#ddd}th,td{border-color:#333}}"""


def markdown(parts: Mapping[str, Part], titles: Mapping[str, str], facts: Mapping[str, str]) -> str:
    """The whole page."""
    lines = ["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in facts.items()), ""]
    for name, part in parts.items():
        lines += [f"## {titles[name]}", "", *_markdown_part(name, part)]
    return "\n".join(lines)


def _markdown_part(name: str, part: Part) -> Iterable[str]:
    yield f"`make bench ONLY={name}`, {part.seconds / 60:.1f} minutes on the clock."
    yield ""
    if part.failed:
        yield from (f"**Not measured whole:** {part.failed}", "")
    if part.rows:
        yield from _markdown_table(ROWS, (_cells(row) for row in part.rows))
    for grid in part.grids:
        yield from (f"### {grid.title}", "")
        yield from _markdown_table(grid.header, grid.lines)
    for note in part.notes:
        yield from (note, "")


def _markdown_table(header: Iterable[str], lines: Iterable[Iterable[str]]) -> Iterable[str]:
    head = list(header)
    yield f"| {' | '.join(head)} |"
    yield "|" + "---|" * len(head)
    for line in lines:
        yield f"| {' | '.join(cell.replace('|', '∣') for cell in line)} |"
    yield ""


def _cells(row: Row) -> tuple[str, ...]:
    bound = f"≤ {row.bound:g} {'✓' if row.holds else '✗'}" if row.bound else "–"
    return (row.what, number(row.ours), number(row.base), row.unit, f"{row.ratio:.2f}", bound)


def number(value: float) -> str:
    """Three digits that count; whole numbers as they are."""
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"


def html(parts: Mapping[str, Part], titles: Mapping[str, str], facts: Mapping[str, str]) -> str:
    """The whole page, with a picture for each table."""
    body = [_html_table(("", ""), facts.items())]
    for name, part in parts.items():
        body.append(f"<h2>{escape(titles[name])}</h2>")
        if part.failed:
            body.append(f"<p class=no>Not measured whole: {escape(part.failed)}</p>")
        if part.rows:
            body += [_html_table(ROWS, (_cells(row) for row in part.rows)), ratios(part.rows)]
        for grid in part.grids:
            body += [f"<h3>{escape(grid.title)}</h3>", _html_grid(grid)]
        body += [f"<p>{escape(note)}</p>" for note in part.notes]
    return (
        "<!doctype html>\n<html lang=en><meta charset=utf-8><title>Benchmarks</title>"
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style>\n<h1>Benchmarks</h1>\n"
        + "\n".join(body)
        + "\n</html>\n"
    )


def _html_grid(grid: Grid) -> str:
    return _html_table(grid.header, grid.lines) + "".join(bars(picture) for picture in grid.bars)


def _html_table(header: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    rows = ("".join(_html_cell(cell) for cell in line) for line in lines)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _html_cell(cell: str) -> str:
    kind = " class=ok" if "✓" in cell else " class=no" if "✗" in cell else ""
    if not kind and cell.replace(",", "").replace(".", "").strip().isdigit():
        kind = " class=n"
    return f"<td{kind}>{escape(cell)}</td>"


def bars(picture: Bars) -> str:
    """Horizontal bars with their values; ours in green."""
    top = max(picture.values.values(), default=1.0) or 1.0
    drawn = []
    for place, (label, value) in enumerate(picture.values.items()):
        y, length = 24 + place * LINE, max(1.0, (WIDTH - LABEL - 90) * value / top)
        colour = "#0a7a33" if label in picture.ours else "#8a94a6"
        drawn.append(
            f"<text x='{LABEL - 8}' y='{y + 14}' text-anchor='end'>{escape(label)}</text>"
            f"<rect x='{LABEL}' y='{y + 3}' width='{length:.1f}' height='{LINE - 8}' fill='{colour}'/>"
            f"<text x='{LABEL + length + 6:.1f}' y='{y + 14}'>{number(value)} {escape(picture.unit)}</text>"
        )
    return _svg(picture.title, 30 + len(picture.values) * LINE, drawn)


def ratios(rows: Iterable[Row]) -> str:
    """Each row's ratio as a part of its bound: the line is the bound, red is beyond it."""
    bounded = [row for row in rows if row.bound]
    if not bounded:
        return ""
    scale = (WIDTH - LABEL - 90) / max(1.2, *(min(3.0, row.ratio / row.bound) for row in bounded))
    drawn = []
    for place, row in enumerate(bounded):
        y, share = 24 + place * LINE, row.ratio / row.bound
        colour = "#0a7a33" if row.holds else "#b3261e"
        label = row.what if len(row.what) <= 48 else f"{row.what[:47]}…"
        drawn.append(
            f"<text x='{LABEL - 8}' y='{y + 14}' text-anchor='end'>{escape(label)}</text>"
            f"<rect x='{LABEL}' y='{y + 3}' width='{max(1.0, min(3.0, share) * scale):.1f}' height='{LINE - 8}' "
            f"fill='{colour}'/>"
        )
    x, bottom = LABEL + scale, 26 + len(bounded) * LINE
    drawn.append(f"<line x1='{x:.1f}' y1='22' x2='{x:.1f}' y2='{bottom}' stroke='#b3261e' stroke-dasharray='4 3'/>")
    return _svg("ratio as a part of its bound (the dashed line)", bottom + 6, drawn)


def _svg(title: str, height: int, drawn: Iterable[str]) -> str:
    return (
        f"<svg viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' role='img' aria-label='{escape(title, quote=True)}'>"
        f"<text x='0' y='14'>{escape(title)}</text>{''.join(drawn)}</svg>"
    )
