"""Where ONNX Runtime loads the test model of an ONNX operator, it loads that model cast to half precision too."""

import warnings
from collections.abc import Iterator

import numpy as np
import onnx
import pytest

from convert.ort import SessionFailed, SessionSettings, open_session, run_session
from convert.precision import cast_model

SAMPLED = 15
"""The short form takes every so manieth operator model; the long form all of them (about 1900)."""
SETTINGS = SessionSettings(threads=1)


def _models(step: int) -> Iterator[tuple[str, onnx.ModelProto]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = sorted(collect_testcases(None), key=lambda case: case.name)
    for case in cases[::step]:
        if case.model is not None:
            yield case.name, case.model


def _opset(model: onnx.ModelProto) -> int:
    return next((entry.version for entry in model.opset_import if entry.domain == ""), 0)


def _loads(model: onnx.ModelProto) -> str:
    try:
        open_session(model.SerializeToString(), SETTINGS)
    except SessionFailed as failure:
        return str(failure)
    return ""


def _refused(step: int, precision: str) -> tuple[int, list[str]]:
    tried, refused = 0, []
    for name, model in _models(step):
        if _loads(model) or (precision == "bf16" and _opset(model) < 13):
            continue
        ends = [value.type.SerializeToString() for value in (*model.graph.input, *model.graph.output)]
        cast_model(model, precision)
        tried += 1
        problem = _loads(model)
        if ends != [value.type.SerializeToString() for value in (*model.graph.input, *model.graph.output)]:
            problem = "its ends changed"
        if problem:
            refused.append(f"{name}: {problem}")
    return tried, refused


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_a_sample_of_operators_loads_when_cast(precision):
    tried, refused = _refused(SAMPLED, precision)
    assert refused == []
    assert tried > 100


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_every_operator_loads_when_cast(precision):
    tried, refused = _refused(1, precision)
    assert refused == []
    assert tried > 1500


def test_scatters_that_combine_elements_still_run():
    text = """<ir_version: 9, opset_import: ["" : 18]>
        g (float[4] x, int64[2] i, float[2] u) => (float[4] y)
        { y = ScatterElements<axis = 0, reduction = "add">(x, i, u) }"""
    for precision in ("fp16", "bf16"):
        model = onnx.parser.parse_model(text)
        cast_model(model, precision)
        feeds = {"x": np.ones(4, np.float32), "i": np.int64([1, 1]), "u": np.float32([2, 3])}
        assert run_session(open_session(model.SerializeToString()), feeds)[0].tolist() == [1, 6, 1, 1]
