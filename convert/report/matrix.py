"""``render_matrix``: the matrix of all targets as one HTML page that needs nothing else: no network, no script."""

from __future__ import annotations

from itertools import groupby

from op_registry.survey import OUTCOMES, Matrix, without_members
from op_registry.targets import PRECISIONS

CLASSES = {"runnable": "good", "with rewrites": "fair", "unknown": "open", "blocked": "bad", "no compiler": "none"}
MEANING = {
    "runnable": "every operator is taken as the graph stands",
    "with rewrites": "no operator is refused at the opset named, so the model has to be brought there",
    "unknown": "nothing is refused, but of most operators nothing is known",
    "blocked": "operators are refused at every opset of the target",
    "no compiler": "no public compiler of this maker takes ONNX",
}


def render_matrix(matrix: Matrix) -> str:
    """The page. Names come from strangers: the template escapes every text."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("convert.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    rows = without_members(matrix.rows)
    groups = [(title, list(found)) for title, found in groupby(rows, key=lambda row: row.title)]
    outcomes = [row.outcome for row in rows if not row.rare]
    return environment.get_template("matrix.html.j2").render(
        matrix=matrix,
        groups=groups,
        classes=CLASSES,
        meaning=MEANING,
        precisions=PRECISIONS,
        counts=[(name, outcomes.count(name)) for name in OUTCOMES if name in outcomes],
    )
