"""check: ``OnnxGraph ─▶ CheckedGraph``. Every node is judged by the target's support data; nothing is refused here."""

from __future__ import annotations

from pathlib import Path

from convert.graphs import read_model
from convert.values import CheckedGraph, CheckOptions, OnnxGraph, Support
from op_registry.judge import judge_model
from op_registry.overlay import read_overlay
from op_registry.targets import find_target


def check_graph(graph: OnnxGraph, options: CheckOptions, folder: Path) -> CheckedGraph:
    """Judge all nodes of a graph, subgraphs and local functions included.

    Raises :class:`op_registry.errors.RegistryDataError` for a toolchain version that can't be read.
    """
    judgement = judge_model(
        read_model(graph.model_path),
        find_target(options.target),
        toolchain_version=options.toolchain_version,
        strict=options.strict,
        site=read_overlay() if options.overlay else (),
    )
    support = Support(
        supported=judgement.supported,
        nodes=judgement.nodes,
        opset=judgement.opset,
        best_opset=judgement.best_opset,
        toolchain_version=judgement.toolchain_version,
        judged=judgement.judged,
    )
    return CheckedGraph(parent=graph.digest, target=options.target, support=support, folder=str(folder))
