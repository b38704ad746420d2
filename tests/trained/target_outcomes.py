"""How a graph ends on a target, up to the compiler: ready, refused by operators, or by the compiler's plan."""

from __future__ import annotations

from pathlib import Path

from convert.backends import knows_backend, load_backend
from convert.errors import EXPECTED
from convert.request import Request
from convert.stages.adapt import adapt_graph
from convert.stages.check import check_graph
from convert.target_options import precision_of
from convert.values import AdaptOptions, CheckOptions, CompileOptions, LoadOptions, OnnxGraph
from op_registry.targets import all_targets
from op_registry.values import Judged, Target

READY = "ready"
BY_ARCHITECTURE = ("ascend",)
"""Vendors whose rows differ by architecture; a test holds this against the data."""


def alike() -> dict[str, tuple[str, ...]]:
    """Every target of the registry, by the first of those that the same questions are asked for.

    Support data know a part by the toolchain versions that know it and, where a vendor's data name architectures at
    all, by its own; what a plan says depends on the default precision and the opset range beside.
    """
    groups: dict[tuple[object, ...], list[str]] = {}
    for target in all_targets():
        part = target.arch if target.vendor in BY_ARCHITECTURE or target.backend == "onnxruntime" else ""
        known = (target.vendor, part, target.toolchains, target.default_precision, target.opset_max)
        groups.setdefault(known, []).append(target.name)
    return {names[0]: tuple(names) for names in groups.values()}


def outcome(graph: OnnxGraph, target: Target, folder: Path) -> str:
    """Adapt and check a graph for a target and plan its compilation, as far as that goes on a machine without it."""
    for stage in ("adapt", "check"):
        (folder / stage).mkdir(parents=True)
    adapted = graph
    if target.arch != "cpu":
        adapted = adapt_graph(graph, AdaptOptions(target=target.name), folder / "adapt")
    support = check_graph(adapted, CheckOptions(target=target.name), folder / "check").support
    if not support.supported:
        return refusal(support.judged)
    if not knows_backend(target.backend):
        return "no compiler"
    request = Request(load=LoadOptions(path="m"), targets=(target.name,))
    options = CompileOptions(target=target.name, backend=target.backend, precision=precision_of(request, target))
    try:
        backend = load_backend(target.backend)
        backend.plan(adapted, target, options, backend.assumed())
    except EXPECTED as error:
        return in_short(error.code, error.message.replace(target.name, "the part"))
    return READY


def refusal(judged: tuple[Judged, ...]) -> str:
    """The operators that are refused, each once, with the reason."""
    return "; ".join(sorted({f"{one.op}: {one.reason}" for one in judged if one.state == "refused"}))


def in_short(code: str, message: str) -> str:
    """A refusal of the plan: its code, and what it says up to the first colon."""
    return f"{code} {message.partition(':')[0].partition(';')[0]}"
