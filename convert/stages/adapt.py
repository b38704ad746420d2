"""adapt: ``OnnxGraph ─▶ OnnxGraph``, per target: the opset that its support data favour, and rewrites where they help.

A change is kept only where the target then refuses less (or, with as many refusals, risks or slows less), and only
where ONNX Runtime gives the reference outputs on every sample. Nothing is refused here: ``check`` comes next.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from onnx import ModelProto

from convert.graphs import (
    MODEL,
    carry_samples,
    facts,
    linked_graph,
    model_entries,
    op_counts,
    opset_of,
    read_model,
    read_samples,
    write_model,
)
from convert.lowering import LoweringRefused, lower
from convert.normalize import name_nodes
from convert.ort import SessionFailed, exact_settings, run_samples
from convert.proof import departures
from convert.rewrites import RULES, Applied, Rewrite, load_rule, rewrite
from convert.ties import read_ties
from convert.values import AdaptOptions, Note, OnnxGraph
from op_registry.judge import judge_model
from op_registry.overlay import read_overlay
from op_registry.targets import find_target
from op_registry.values import Judgement, Target

NAMED = 20
"""How many nodes of a rewrite are named in its proof."""
HEAVY = 1 << 30
"""Graphs with more weights than this are lowered, but not rewritten: each proof would run them several times."""
WEIGHT = {"refused": 1_000_000, "risk": 1_000, "slow": 1}
"""How states weigh against each other; unknown operators stay unknown, whatever is done."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A graph and what the target says of it."""

    model: ModelProto
    judgement: Judgement

    @property
    def score(self) -> tuple[int, int]:
        """Less is better: what the target finds fault with, then the number of nodes that compute something."""
        faults = sum(WEIGHT.get(one.state, 0) for one in self.judgement.judged)
        return faults, sum(count for op, count in op_counts(self.model).items() if op != "Constant")

    @property
    def faults(self) -> int:
        """What the target finds fault with."""
        return self.score[0]


@dataclass(frozen=True)
class Adapted:
    """A graph on its way to a target: what was done to it so far, and how that was proven."""

    best: Candidate
    notes: tuple[Note, ...] = ()
    proofs: tuple[dict[str, Any], ...] = ()

    def then(self, best: Candidate, note: Note, *proofs: dict[str, Any]) -> Adapted:
        """After one more step."""
        return Adapted(best, (*self.notes, note), (*self.proofs, *proofs))


def adapt_graph(graph: OnnxGraph, options: AdaptOptions, folder: Path) -> OnnxGraph:
    """Adapt a graph to a target, or keep it. Raises nothing of its own."""
    start = _judged(read_model(graph.model_path), options)
    if not start.faults:
        return _kept(graph, (), folder)
    made = _adapted(start, graph, options)
    if made.best is start:
        return _kept(graph, made.notes, folder)
    name_nodes(made.best.model)
    names = write_model(made.best.model, folder, weights_from=Path(graph.folder))
    if reason := _departure(graph, folder):
        for name in names:
            (folder / name).unlink()
        return _kept(graph, (Note(level="warning", text=f"kept as it was: the adapted graph {reason}"),), folder)
    return OnnxGraph(
        parent=graph.digest,
        stage="adapt",
        dims=graph.dims,
        sample_count=graph.sample_count,
        calibration_count=graph.calibration_count,
        made_by="adapt",
        adapted=made.proofs,
        exporters=graph.exporters,
        notes=made.notes,
        files=tuple(sorted((*model_entries(folder, names, graph.files), *carry_samples(graph, folder)))),
        folder=str(folder),
        **facts(made.best.model),
    )


def _adapted(start: Candidate, graph: OnnxGraph, options: AdaptOptions) -> Adapted:
    """Another opset and rewrites there, or rewrites where the graph stands: fewer faults win, then fewer nodes."""
    light = graph.weight_bytes < HEAVY
    lowered = _at_best_opset(start, options)
    moved = _rewritten(lowered, graph, options) if lowered.best.faults and light else lowered
    if moved.best is start or not light or not _all_avoidable(start):
        return moved
    stayed = _rewritten(Adapted(start), graph, options)
    return min(stayed, moved, key=lambda one: one.best.score)


def _all_avoidable(start: Candidate) -> bool:
    """Whether some rewrite is about every operator that the target finds fault with."""
    known = {op for rule in map(load_rule, RULES) if not rule.opt_in for op in _ops(rule)}
    return {one.op for one in start.judgement.judged if one.state in WEIGHT} <= known


def _judged(model: ModelProto, options: AdaptOptions) -> Candidate:
    site = read_overlay() if options.overlay else ()
    target = find_target(options.target)
    judgement = judge_model(model, target, toolchain_version=options.toolchain_version, site=site)
    return Candidate(model=model, judgement=judgement)


def _at_best_opset(start: Candidate, options: AdaptOptions) -> Adapted:
    """The graph at the best opset that it can be brought to. An opset that the user asked for stays."""
    current = opset_of(start.model)
    if options.opset:
        return Adapted(start)
    tried: list[str] = []
    for opset in _opsets(start.judgement.best_opset, current, find_target(options.target)):
        try:
            found = _judged(lower(start.model, opset), options)
        except LoweringRefused as refused:
            tried.append(f"{opset}: {', '.join(sorted({refusal.op for refusal in refused.refusals}))}")
            continue
        if found.faults < start.faults:
            note = Note(text=f"brought from opset {current} to {opset}")
            return Adapted(start).then(found, note, {"lowered": {"from": current, "to": opset}})
    if tried:
        text = f"no equivalent at opset {'; '.join(tried[:4])}"
        return Adapted(start, notes=(Note(level="warning", text=text),))
    return Adapted(start)


def _opsets(best: int, current: int, target: Target) -> list[int]:
    """Opsets to try: the best by the support data, then the target's others from the highest down."""
    highest = target.opset_max or current
    rest = [opset for opset in range(highest, max(target.opset_min, 11) - 1, -1) if opset not in (best, current)]
    return [opset for opset in (best, *rest) if opset and opset != current]


def _rewritten(made: Adapted, graph: OnnxGraph, options: AdaptOptions) -> Adapted:
    """Apply the rewrites that make something avoidable that the target finds fault with, each kept where it helps.

    Of several that serve the same fault the one that leaves the fewest faults, then the fewest nodes, goes first.
    """
    feeds, _ = read_samples(graph)
    rules = [rule for rule in map(load_rule, RULES) if not rule.opt_in]
    while useful := [rule for rule in rules if _useful(rule, made.best)]:
        rivals = [rule for rule in useful if _ops(rule) & _ops(useful[0])]
        for rule in _ranked(rivals, made.best, options):
            rules.remove(rule)
            result = rewrite(made.best.model, [rule.name], samples=feeds, folder=graph.folder)
            found = _judged(result.model, options) if result.applied else made.best
            if found.faults < made.best.faults:
                nodes = [node for applied in result.applied for node in applied.nodes]
                text = f"rewritten by {rule.name}: {rule.title}, {len(nodes)} places"
                made = made.then(found, Note(text=text, subject=nodes[0]), *map(_proof, result.applied))
                break
        else:
            rules = [rule for rule in rules if rule not in rivals]
    return made


def _ops(rule: Rewrite) -> set[str]:
    """The operators that a rewrite makes avoidable; what concerns the graph as a whole has its name there, too."""
    return {"(graph)" if avoided.op == "*" else avoided.op for avoided in rule.avoids}


def _useful(rule: Rewrite, best: Candidate) -> bool:
    """Whether a rewrite is about something that the target finds fault with."""
    return bool(_ops(rule) & {one.op for one in best.judgement.judged if one.state in WEIGHT})


def _ranked(rivals: list[Rewrite], best: Candidate, options: AdaptOptions) -> list[Rewrite]:
    """Rewrites that serve the same fault, the best first, as the support data judge them; those that help none go."""
    if len(rivals) == 1:
        return rivals
    scored = []
    for rule in rivals:
        changed = ModelProto()
        changed.CopyFrom(best.model)
        if rule.run(changed, ""):
            scored.append((_judged(changed, options).score, rule))
    return [rule for score, rule in sorted(scored, key=lambda one: one[0]) if score[0] < best.faults]


def _proof(applied: Applied) -> dict[str, Any]:
    """A rewrite and how it was proven, as the manifest keeps it. Of many nodes the first are named."""
    gap = applied.evidence.get("max_abs", 0.0)
    # The next power of ten: the last digits are the machine's.
    below = 10.0 ** math.ceil(math.log10(gap)) if gap > 0 else 0.0
    evidence = {name: value for name, value in applied.evidence.items() if name != "max_abs"}
    return {
        "rewrite": applied.name,
        "nodes": list(applied.nodes[:NAMED]),
        "count": len(applied.nodes),
        "evidence": {**evidence, "max_abs_below": below},
    }


def _departure(graph: OnnxGraph, folder: Path) -> str:
    """How the adapted graph departs from the reference outputs; empty where it gives them, or none are known."""
    feeds, wanted = read_samples(graph)
    if not wanted:
        return ""
    ties = [read_ties(graph, number) for number in range(graph.sample_count)]
    try:
        outputs = run_samples(folder / MODEL, feeds, exact_settings(folder / MODEL))
    except SessionFailed as failure:
        return f"does not run: {failure}"
    departed = departures([spec.name for spec in graph.outputs], wanted, outputs, ties)
    return f"gives other numbers: {'; '.join(departed)}" if departed else ""


def _kept(graph: OnnxGraph, notes: tuple[Note, ...], folder: Path) -> OnnxGraph:
    files = linked_graph(graph, folder)
    return msgspec.structs.replace(
        graph, parent=graph.digest, stage="adapt", notes=notes, files=files, folder=str(folder)
    )
