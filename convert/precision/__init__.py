"""READ FIRST: casting a graph to fp16 or bf16, and making graphs with types that ONNX Runtime lacks run.

    policy    what a precision does to a node
    kernels   which types ONNX Runtime's CPU kernels take
    scope     the values of a graph, and the types each exists in
    caster    the rewriting itself
    weights   casting weights; external ones are streamed
    sorting   nodes in order
    hazards   what in a graph will overflow float16, by its constants and by a run

and forecasting what a precision does to the numbers (``convert/stages/forecast.py``):

    types     the types that schemas and inputs give a node
    rounding  arrays rounded as fp16, bf16 and int8 hold them
    flow      a graph as a flow of values, bodies included
    sums      reductions with the sum that they form on the way
    probes    outputs that tell a few elements and the range of many tensors
    emulate   the graph with every stored value rounded, and sessions that are watched by probes
    stats     errors of all tensors of a run in one table
    weight_errors  what rounding does to each weight
    blame     whose error it is that an output has
    rules     findings in words: overflow, masks, epsilons, sums
    study     one graph, its samples, and evaluations of it
    nodes     the forecast of each node, and the guilty ones
    plan      the nodes to keep in fp32
    progress  the checks of a search, kept while it runs
    calibrate ranges for int8
    qdq       int8 pairs around products
    int8_study  the study of int8

The result always loads in ONNX Runtime where the graph did: a node that takes no half type gets casts around it.
"""

from __future__ import annotations

import onnx.inliner
from onnx import ModelProto

from convert.precision.caster import Caster
from convert.precision.policy import POLICIES
from convert.values import Note, Precision

__all__ = ["cast_model", "make_runnable"]


def cast_model(model: ModelProto, precision: Precision, *, keep: frozenset[str] = frozenset()) -> tuple[Note, ...]:
    """Cast a model to ``fp16``, ``bf16`` or ``mixed`` (in place) and say what was done; others leave it alone.

    ``mixed`` is fp16 but for ``keep``. Inputs and outputs keep their types. ``keep``: names of nodes that stay as they
    are. External weights stay references; ``convert.bigmodel.place_weights`` casts them while it writes them.
    """
    if precision == "mixed":
        precision = "fp16"
    if precision not in ("fp16", "bf16"):
        return ()
    return tuple(_notes(_cast(model, precision, keep), precision, keep))


def make_runnable(model: ModelProto) -> tuple[Note, ...]:
    """Put casts to float32 around nodes whose bfloat16 or float64 kernel ONNX Runtime lacks (in place).

    Gives a note that names the operators; none where there are no such nodes.
    """
    caster = _cast(model, "widen", frozenset())
    if not caster.widened:
        return ()
    ops = _counted(caster.widened)
    text = f"{len(caster.widened)} nodes compute in float32: ONNX Runtime has no CPU kernel for their type ({ops})"
    return (Note(level="warning", text=text),)


def _cast(model: ModelProto, policy: str, keep: frozenset[str]) -> Caster:
    if model.functions:
        model.CopyFrom(onnx.inliner.inline_local_functions(model))
    opsets = {entry.domain.replace("ai.onnx", "") if entry.domain == "ai.onnx" else entry.domain: entry.version
              for entry in model.opset_import}  # fmt: skip
    caster = Caster(POLICIES[policy], opsets, keep)
    caster.cast_graph(model.graph)
    return caster


def _notes(caster: Caster, precision: str, keep: frozenset[str]) -> list[Note]:
    name = {"fp16": "float16", "bf16": "bfloat16"}[precision]
    done = f"{len(caster.switched)} nodes and {caster.weights} weights are {name}; {caster.casts} casts added"
    none = f"nothing was cast: no node computes in float32 that {name} could hold"
    notes = [Note(text=done if caster.switched else none)]
    if caster.widened:
        text = f"{len(caster.widened)} nodes compute in float32 between casts, as ONNX Runtime lacks their CPU kernels"
        notes.append(Note(text=f"{text} in {name} ({_counted(caster.widened)})"))
    if caster.borrowed:
        text = f"{len(caster.borrowed)} nodes compute in float32 on a CPU, as ONNX Runtime lacks their CPU kernels"
        notes.append(Note(text=f"{text} in {name} ({_counted(caster.borrowed)})"))
    if caster.shape_only:
        notes.append(Note(text=f"{caster.shape_only} nodes that compute sizes stay as they were"))
    if caster.kept:
        notes.append(Note(text=f"{len(caster.kept)} of {len(keep)} nodes of the plan stay in float32"))
    missing = keep - caster.kept
    if missing:
        text = f"no node is called {', '.join(sorted(missing))}, so nothing was kept in float32 for it"
        notes.append(Note(level="warning", text=text))
    return notes


def _counted(ops: list[str]) -> str:
    counts = {op: ops.count(op) for op in sorted(set(ops))}
    return ", ".join(f"{count} {op}" for op, count in counts.items())
