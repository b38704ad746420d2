"""``apply_all``: rewrites one after another, each proven or undone."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import ModelProto

from convert.rewrites.base import Applied, Rewrite, RewriteResult, Undone
from convert.rewrites.prove import Feeds, prove


def apply_all(
    model: ModelProto, rules: Sequence[tuple[Rewrite, str]], samples: Sequence[Feeds], folder: str
) -> RewriteResult:
    """See ``convert.rewrites.rewrite``."""
    current, applied, undone = model, list[Applied](), list[Undone]()
    for rule, argument in rules:
        changed = ModelProto()
        changed.CopyFrom(current)
        nodes = tuple(rule.run(changed, argument))
        if not nodes:
            continue
        evidence, problem = prove(current, changed, samples, folder, repairs=rule.repairs, allowed=rule.allowed)
        if problem:
            undone.append(Undone(name=rule.name, nodes=nodes, reason=problem))
            continue
        applied.append(Applied(name=rule.name, nodes=nodes, evidence=evidence))
        current = changed
    if current is model:
        current = ModelProto()
        current.CopyFrom(model)
    return RewriteResult(current, tuple(applied), tuple(undone))
