"""The two halves of a detector, one after the other, are the detector."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import parser

from convert.errors import ExportError
from convert.rewrites.nms_split import split_suppression

DETECTOR = """<ir_version: 8, opset_import: ["": 17]>
agraph (float[1, N, 4] raw, float[1, 2, N] s) => (float[1, 2, N] p, int64[K, 3] picked, float[1, N, 4] b)
<int64 most = {5}, float over = {0.5}, float least = {0.1}, float two = {2.0}> {
    p = Sigmoid(s)
    b = Mul(raw, two)
    chosen = NonMaxSuppression(b, p, most, over, least)
    picked = Identity(chosen)
}"""


def run(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip((o.name for o in session.get_outputs()), session.run(None, feeds), strict=True))


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(count=st.integers(1, 12), seed=st.integers(0, 100))
def test_the_halves_make_the_whole(count: int, seed: int) -> None:
    model = parser.parse_model(DETECTOR)
    generator = np.random.default_rng(seed)
    corners = generator.uniform(0, 10, (1, count, 2)).astype(np.float32)
    feeds = {
        "raw": np.concatenate([corners, corners + 2], axis=2),
        "s": generator.standard_normal((1, 2, count)).astype(np.float32),
    }
    split = split_suppression(model)
    first = run(split.main, feeds)
    second = run(split.post, {name: first[name] for name in split.cut})
    whole = run(model, feeds)
    assert sorted({*first, *second}) == ["b", "p", "picked"]
    for name, value in whole.items():
        assert np.array_equal(value, (first | second)[name])


def test_the_card_gets_no_suppression_and_the_host_no_rest() -> None:
    split = split_suppression(parser.parse_model(DETECTOR))
    assert [node.op_type for node in split.main.graph.node] == ["Sigmoid", "Mul"]
    assert [node.op_type for node in split.post.graph.node] == ["NonMaxSuppression", "Identity"]
    assert split.cut == ("b", "p")
    assert {tensor.name for tensor in split.post.graph.initializer} == {"most", "over", "least"}
    for part in (split.main, split.post):
        onnx.checker.check_model(part, full_check=True)


def test_a_model_without_suppression_is_refused() -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> agraph (float[2] x) => (float[2] y) { y = Relu(x) }'
    with pytest.raises(ExportError, match="no NonMaxSuppression") as error:
        split_suppression(parser.parse_model(text))
    assert error.value.code == "CNV-4113"
