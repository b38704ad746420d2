"""Attributes of recurrent nodes that say what holds anyway: compilers that read none of them take the node then."""

from __future__ import annotations

from typing import Any

from onnx import ModelProto

from convert.lowering.rules.recurrent import STATES
from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node

ACTIVATIONS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
"""The activations of one direction where nothing else is said."""


def _idle(site: Site) -> list[str]:
    op = site.node.op_type
    if op not in STATES:
        return []
    directions = 2 if site.attr("direction", "forward") == "bidirectional" else 1
    usual: dict[str, Any] = {
        "activations": [name.encode() for name in ACTIVATIONS[op] * directions],
        "activation_alpha": [],
        "activation_beta": [],
        "input_forget": 0,
        "linear_before_reset": 0,
        "layout": 0,
    }
    return [
        item.name for item in site.node.attribute if item.name in usual and site.attr(item.name) == usual[item.name]
    ]


def _without(site: Site) -> None:
    site.same(drop=_idle(site))


def run(model: ModelProto, argument: str) -> list[str]:
    """Leave out what says nothing; says of which nodes."""
    return each_node(model, _without, lambda site: bool(_idle(site)))


RULE = Rewrite(
    name="rnn-defaults",
    title="recurrent nodes without attributes at their defaults",
    avoids=tuple(Avoided(op=op, attribute="activations", fact="default-written") for op in STATES),
    run=run,
)
