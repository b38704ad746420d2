"""Graphs of many small tensors: joined as they come, and measured together as each would be alone."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from convert.precision.probes import JOINED_AT, Prober
from convert.precision.readings import Reading, Readings
from convert.precision.rounding import FORMATS, rounded
from convert.precision.shapes import shapes_of
from convert.precision.stats import ASIDE_UP_TO, GROSS, measure

RNG = np.random.default_rng(1)


def _chain(count: int) -> onnx.ModelProto:
    names = ["x", *(f"v{place}" for place in range(count))]
    nodes = [helper.make_node("Tanh", [before], [after]) for before, after in itertools.pairwise(names)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 16]) for name in ("x", names[-1])]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_small_tensors_are_joined_as_soon_as_they_are_many():
    model = _chain(2 * JOINED_AT + 100)
    names = [node.output[0] for node in model.graph.node]
    probes = Prober(shapes_of(model, {"x": (1, 16)}), 32).add(model, names, looks="elements")
    assert [len(joined.tensors) for joined in probes.joined] == [JOINED_AT, JOINED_AT, 100]
    assert [name for joined in probes.joined for name in joined.tensors] == names
    concats = [place for place, node in enumerate(model.graph.node) if node.op_type == "Concat"]
    assert concats == [JOINED_AT, 2 * JOINED_AT + 1, len(model.graph.node) - 1]


@pytest.mark.parametrize("size", [1, 16, ASIDE_UP_TO, ASIDE_UP_TO + 1])
@pytest.mark.parametrize("odd", [None, np.inf, -np.inf, np.nan, 0.0, 1e5, 1e-7])
def test_tensors_of_one_size_are_measured_as_among_others(size: int, odd: float | None):
    def told(values: list[np.ndarray]) -> Readings:
        return Readings.of((f"t{place}", Reading(one)) for place, one in enumerate(values))

    def measured(names: list[str], exact: Readings, other: Readings):
        return measure(names, exact, other, lambda values, _: rounded(values, "fp16"), FORMATS["fp16"])

    exact = [RNG.standard_normal(size).astype(np.float32) for _ in range(5)]
    other = [one + np.float32(0.01) for one in exact]
    if odd is not None:
        exact[2][0] = odd
    together = measured([f"t{place}" for place in range(5)], told(exact), told(other))
    beside = np.ones(size + 1, np.float32)
    for place in range(5):
        alone = measured(["t0", "t1"], told([exact[place], beside]), told([other[place], beside]))
        for column in ("low", "high", "rms", "overflow", "flushed", "made", "made_most", "passed", "passed_most"):
            np.testing.assert_allclose(getattr(together, column)[place], getattr(alone, column)[0], rtol=1e-12)
    assert (together.made_most[2] == GROSS) == (odd == 1e5)
