"""RNN, GRU and LSTM with the batch first, by transposition: several compilers read the layout and pass over it."""

from __future__ import annotations

from onnx import ModelProto

from convert.lowering.rules.recurrent import STATES, layout_by_transposition
from convert.lowering.site import Site
from convert.rewrites.base import Avoided, Rewrite
from convert.rewrites.nodes import each_node


def _batch_first(site: Site) -> bool:
    return site.node.op_type in STATES and bool(site.attr("layout", 0))


def run(model: ModelProto, argument: str) -> list[str]:
    """Replace every recurrent node whose layout is 1; says which."""
    return each_node(model, layout_by_transposition, _batch_first)


RULE = Rewrite(
    name="rnn-layout",
    title="recurrent nodes with the sequence first",
    avoids=tuple(Avoided(op=op, attribute="layout", values=(1,)) for op in STATES),
    run=run,
)
