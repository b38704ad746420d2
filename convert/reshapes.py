"""``Reshape`` to computed sizes that are known after all: written down, and what computed them left out.

Exporters compute the sizes of a Reshape from ``Shape`` of something wherever a dimension is symbolic: a dozen nodes for
each block of a transformer, which compilers for accelerators take badly. ONNX's inference follows the contents of such
vectors; where all sizes but one are numbers, that one is -1, and where every symbolic one stands at the place that it
has in the input, it is 0, which copies it.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, numpy_helper

from convert.bigmodel import is_external
from convert.lowering.engine import all_names
from convert.lowering.schemas import main_domain
from convert.lowering.site import Names
from convert.rewrites.nodes import drop_idle
from convert.symbolic_sizes import LONGEST, Followed, Size, Sizes, attribute

COMPUTING = frozenset((
    "Shape", "Size", "Gather", "Slice", "Concat", "Unsqueeze", "Squeeze", "Cast", "Constant", "Identity", "Add", "Sub",
    "Mul", "Div", "Mod", "Floor", "Ceil", "Min", "Max", "Neg", "Abs", "Range", "Where", "Equal", "Expand",
    "ConstantOfShape", "ReduceProd", "ScatterND", "Reshape",
))  # fmt: skip
"""What sizes are computed with: of these, what nothing reads any more is left out."""


def settle_reshapes(model: ModelProto) -> int:
    """Write the sizes of each Reshape of the main graph that can be known into the graph, in place; gives how many.

    The nodes must be in order.
    """
    if not (waiting := _computed(model)):
        return 0
    known, names, settled = Followed(model), Names(all_names(model)), 0
    written: dict[tuple[int, ...], str] = {}
    for node in waiting:
        copies = not attribute(node, "allowzero", 0)
        sizes = written_sizes(known.shape(node.input[0]), known.shape(node.output[0]), copies=copies)
        if sizes is not None:
            node.input[1] = _constant(model, sizes, names, written)
            settled += 1
    if settled:
        _join(model)
        drop_idle(model, *COMPUTING)
    return settled


def written_sizes(given: Sizes | None, made: Sizes | None, *, copies: bool) -> tuple[int, ...] | None:
    """The second input of a Reshape from ``given`` to ``made``; None where it can't be written down.

    Never both -1 and 0: a dimension of size zero would leave open what -1 is. ``copies``: whether 0 copies a size.
    """
    if given is None or made is None or Size(0) in made:
        return None
    axes = [axis for axis, size in enumerate(made) if size is None or size.names]
    if len(axes) > 1:
        stay = all(made[axis] is not None and given[axis : axis + 1] == (made[axis],) for axis in axes)
        if not copies or not stay:
            return None
    filling = -1 if len(axes) == 1 else 0
    return tuple(filling if size is None or size.names else size.factor for size in made)


def _computed(model: ModelProto) -> list[NodeProto]:
    """Every Reshape of the main graph whose sizes are no constant."""
    constant = {tensor.name for tensor in model.graph.initializer}
    constant |= {name for node in model.graph.node if node.op_type == "Constant" for name in node.output}
    return [
        node
        for node in model.graph.node
        if node.op_type == "Reshape" and main_domain(node.domain) and len(node.input) == 2
        and node.input[1] not in constant
    ]  # fmt: skip


def _join(model: ModelProto) -> None:
    """Let a Reshape of a Reshape read what that one reads, where its own sizes copy none. In place."""
    plain = {
        tensor.name
        for tensor in model.graph.initializer
        if tensor.data_type == TensorProto.INT64 and len(tensor.dims) == 1 and tensor.dims[0] <= LONGEST
        and not is_external(tensor) and numpy_helper.to_array(tensor).all()
    }  # fmt: skip
    sources: dict[str, str] = {}
    for node in model.graph.node:
        if node.op_type == "Reshape" and main_domain(node.domain) and len(node.input) == 2:
            if node.input[1] in plain:
                node.input[0] = sources.get(node.input[0], node.input[0])
            sources[node.output[0]] = node.input[0]


def _constant(model: ModelProto, sizes: tuple[int, ...], names: Names, written: dict[tuple[int, ...], str]) -> str:
    """The name of an initializer with these sizes, made once for each."""
    if sizes not in written:
        written[sizes] = names.fresh("sizes")
        model.graph.initializer.append(numpy_helper.from_array(np.array(sizes, np.int64), written[sizes]))
    return written[sizes]
