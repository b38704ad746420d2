"""adapt: ``OnnxGraph ─▶ OnnxGraph``, per target: the opset that its support data favour, and rewrites where they help.

A change is kept only where the target then refuses less (or, with as many refusals, risks or slows less), and only
where ONNX Runtime gives the reference outputs on every sample. Nothing is refused here: ``check`` comes next.
"""

from __future__ import annotations

import math
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
    opset_of,
    read_model,
    read_samples,
    write_model,
)
from convert.lowering import LoweringRefused, lower
from convert.normalize import name_nodes
from convert.ort import SessionFailed, exact_settings, run_samples
from convert.proof import departures
from convert.rewrites import RULES, Applied, load_rule, rewrite
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
        """Less is better: what the target finds fault with, then the number of nodes."""
        counts = self.judgement.counts
        return (sum(weight * counts.get(state, 0) for state, weight in WEIGHT.items()), self.judgement.nodes)

    @property
    def faults(self) -> int:
        """What the target finds fault with."""
        return self.score[0]


def adapt_graph(graph: OnnxGraph, options: AdaptOptions, folder: Path) -> OnnxGraph:
    """Adapt a graph to a target, or keep it. Raises nothing of its own."""
    notes: list[Note] = []
    model = read_model(graph.model_path)
    start = _judged(model, options)
    if not start.faults:
        return _kept(graph, notes, folder)
    best = _at_best_opset(start, options, notes)
    before, after = opset_of(start.model), opset_of(best.model)
    proofs: list[dict[str, Any]] = [{"lowered": {"from": before, "to": after}}] if before != after else []
    if best.faults and graph.weight_bytes < HEAVY:
        best = _rewritten(best, graph, options, notes, proofs)
    if best is start:
        return _kept(graph, notes, folder)
    name_nodes(best.model)
    names = write_model(best.model, folder, weights_from=Path(graph.folder))
    if reason := _departure(graph, folder):
        for name in names:
            (folder / name).unlink()
        return _kept(graph, [Note(level="warning", text=f"kept as it was: the adapted graph {reason}")], folder)
    return OnnxGraph(
        parent=graph.digest,
        stage="adapt",
        dims=graph.dims,
        sample_count=graph.sample_count,
        calibration_count=graph.calibration_count,
        made_by="adapt",
        adapted=tuple(proofs),
        exporters=graph.exporters,
        notes=tuple(notes),
        files=tuple(sorted((*model_entries(folder, names, graph.files), *carry_samples(graph, folder)))),
        folder=str(folder),
        **facts(best.model),
    )


def _judged(model: ModelProto, options: AdaptOptions) -> Candidate:
    site = read_overlay() if options.overlay else ()
    target = find_target(options.target)
    judgement = judge_model(model, target, toolchain_version=options.toolchain_version, site=site)
    return Candidate(model=model, judgement=judgement)


def _at_best_opset(start: Candidate, options: AdaptOptions, notes: list[Note]) -> Candidate:
    """The graph at the best opset that it can be brought to. An opset that the user asked for stays."""
    current = opset_of(start.model)
    if options.opset:
        return start
    tried: list[str] = []
    for opset in _opsets(start.judgement.best_opset, current, find_target(options.target)):
        try:
            found = _judged(lower(start.model, opset), options)
        except LoweringRefused as refused:
            tried.append(f"{opset}: {', '.join(sorted({refusal.op for refusal in refused.refusals}))}")
            continue
        if found.faults < start.faults:
            notes.append(Note(text=f"brought from opset {current} to {opset}"))
            return found
    if tried:
        notes.append(Note(level="warning", text=f"no equivalent at opset {'; '.join(tried[:4])}"))
    return start


def _opsets(best: int, current: int, target: Target) -> list[int]:
    """Opsets to try: the best by the support data, then the target's others from the highest down."""
    highest = target.opset_max or current
    rest = [opset for opset in range(highest, max(target.opset_min, 11) - 1, -1) if opset not in (best, current)]
    return [opset for opset in (best, *rest) if opset and opset != current]


def _rewritten(
    best: Candidate, graph: OnnxGraph, options: AdaptOptions, notes: list[Note], proofs: list[dict[str, Any]]
) -> Candidate:
    """Apply the rewrites that make something avoidable that the target finds fault with, each kept where it helps."""
    feeds, _ = read_samples(graph)
    for name in RULES:
        rule = load_rule(name)
        faulty = {one.op for one in best.judgement.judged if one.state in WEIGHT}
        useful = any(avoided.op in faulty or (avoided.op == "*" and "(graph)" in faulty) for avoided in rule.avoids)
        if rule.opt_in or not useful:
            continue
        result = rewrite(best.model, [name], samples=feeds, folder=graph.folder)
        if not result.applied:
            continue
        found = _judged(result.model, options)
        if found.faults < best.faults:
            best = found
            nodes = [node for applied in result.applied for node in applied.nodes]
            notes.append(Note(text=f"rewritten by {name}: {rule.title}, {len(nodes)} places", subject=nodes[0]))
            proofs += [_proof(applied) for applied in result.applied]
    return best


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


def _kept(graph: OnnxGraph, notes: list[Note], folder: Path) -> OnnxGraph:
    files = linked_graph(graph, folder)
    return msgspec.structs.replace(
        graph, parent=graph.digest, stage="adapt", notes=tuple(notes), files=files, folder=str(folder)
    )
