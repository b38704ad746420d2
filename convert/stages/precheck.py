"""precheck: ``CheckedGraph ─▶ CheckedGraph``. The installed toolkit's own word on every node joins the support data's.

For backends that offer ``precheck(plan, graph, folder, runner)``: its answer's ``judged`` are the nodes refused.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from convert.backends.base import Missing
from convert.errors import CompileFailed
from convert.stages.compile import prepare_folder, probe_toolchain, runner_for, with_soc
from convert.values import CheckedGraph, CompileOptions, OnnxGraph
from op_registry.targets import find_target
from op_registry.values import Judged


def precheck_graph(graph: OnnxGraph, checked: CheckedGraph, options: CompileOptions, folder: Path) -> CheckedGraph:
    """Ask the toolkit of this machine which nodes it refuses. Without a toolkit, or such a question, nothing changes.

    Raises :class:`UsageError` where the backend can't make a plan of the options, :class:`CompileFailed` CNV-7301 where
    the toolkit answers nothing.
    """
    backend, found = probe_toolchain(options, os.environ)
    ask = getattr(backend, "precheck", None)
    if ask is None or isinstance(found, Missing):
        return msgspec.structs.replace(checked, folder=str(folder))
    plan = with_soc(backend.plan(graph, find_target(options.target), options, found), options, found)
    folder.mkdir(parents=True, exist_ok=True)
    prepare_folder(graph, plan, folder)
    told = ask(plan, graph, folder, runner_for(options.timeout, folder, options.launcher, options.compilers))
    if not told.ran:
        raise CompileFailed(
            "CNV-7301",
            f"the toolkit gave no word on the operators: {told.failure}",
            hint="nothing else stops for it: the support data stand, and compiling tells; --option precheck=no",
        )
    return msgspec.structs.replace(joined(checked, in_graph(told.judged, graph)), folder=str(folder))


def in_graph(refused: tuple[Judged, ...], graph: OnnxGraph) -> tuple[Judged, ...]:
    """Refusals with the names that the nodes have in the graph, and their modules in the PyTorch model."""
    if not refused:
        return ()
    from convert.diagnosis.names import real_names
    from convert.graphs import read_model
    from convert.walking import nodes_of
    from op_registry.graph import module_path

    nodes = {node.name: node for node in nodes_of(read_model(graph.model_path)) if node.name}
    found = []
    for one in refused:
        name = next(iter(real_names((one.node,), set(nodes))), one.node)
        module = module_path(nodes[name]) if name in nodes else ""
        found.append(msgspec.structs.replace(one, node=name, module=module or ""))
    return tuple(found)


def joined(checked: CheckedGraph, refused: tuple[Judged, ...]) -> CheckedGraph:
    """The judgement with what the toolkit refuses; its word on a node stands over the support data's."""
    if not refused:
        return checked
    names = {one.node for one in refused}
    kept = tuple(one for one in checked.support.judged if one.node not in names)
    support = msgspec.structs.replace(checked.support, supported=False, judged=(*kept, *refused))
    return msgspec.structs.replace(checked, support=support)
