"""The node cases of ``onnx.backend.test``, and what becomes of one that is taken to another opset."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnxruntime
from onnx.backend.test.case.node import collect_testcases
from onnx.backend.test.case.test_case import TestCase

TARGETS = (11, 13, 16, 17, 18)
RANDOM = {"Bernoulli", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial"}
NO_KERNEL = ("NOT_IMPLEMENTED", "Could not find an implementation", "not a registered function/op", "INVALID_GRAPH")


class Result(NamedTuple):
    """``state``: right, refused, wrong, invalid or failed; ``where``: what computed the outputs."""

    state: str
    where: str = ""
    text: str = ""


@lru_cache(maxsize=1)
def all_cases() -> tuple[TestCase, ...]:
    """The node cases that the installed onnx comes with, in its order."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = collect_testcases(None)
    return tuple(case for case in cases if case.model is not None)


def is_random(case: TestCase) -> bool:
    """Whether outputs are drawn at random, so that only types and shapes can be compared."""
    ops = {node.op_type for node in case.model.graph.node}
    return bool(ops & RANDOM) or ("training_dropout" in case.name and "zero_ratio" not in case.name)


def judge(case: TestCase, target: int, convert: Callable[[onnx.ModelProto, int], onnx.ModelProto]) -> Result:
    """Take a case to an opset, check the model, run it, and compare with the expected outputs."""
    model = convert(case.model, target)
    problem = check(model)
    if problem and not check(case.model):
        return Result("invalid", "", problem)
    found = next((e.version for e in model.opset_import if e.domain in ("", "ai.onnx")), target)
    if found != target:
        return Result("invalid", "", f"opset {found} came out, not {target}")
    result = _compare(case, model, run_ort)
    if result.state == "right":
        return result
    if result.state == "wrong" and _compare(case, case.model, run_ort).state == "right":
        return result
    other = _compare(case, model, run_reference)
    if other.state == "right" or _same_as_before(case, model):
        return Result("right", "reference")
    return Result(other.state, other.where, f"ORT: {result.text} | {other.text}")


def check(model: onnx.ModelProto) -> str:
    """What onnx.checker with shape inference says against a model; empty where it is valid."""
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        return str(error)[:400]
    return ""


def _same_as_before(case: TestCase, model: onnx.ModelProto) -> bool:
    """Whether neither runtime gives what the case expects even for the case as it is, but the same for both models."""
    if any(_compare(case, case.model, run).state == "right" for run in (run_ort, run_reference)):
        return False
    for inputs, _ in case.data_sets:
        try:
            before, after = run_reference(case.model, inputs), run_reference(model, inputs)
        except Exception:
            return False
        if any(difference(a, b, case.rtol, case.atol) for a, b in zip(after, before, strict=True)):
            return False
    return True


def _compare(case: TestCase, model: onnx.ModelProto, run: Callable[..., list[Any]]) -> Result:
    where = "onnxruntime" if run is run_ort else "reference"
    for inputs, expected in case.data_sets:
        try:
            outputs = run(model, inputs)
        except Exception as error:
            return Result("failed", where, f"{type(error).__name__}: {error}"[:400])
        if len(outputs) != len(expected):
            return Result("wrong", where, f"{len(outputs)} outputs, expected {len(expected)}")
        for output, wanted in zip(outputs, expected, strict=True):
            problem = difference(output, wanted, case.rtol, case.atol, values=not is_random(case))
            if problem:
                return Result("wrong", where, problem)
    return Result("right", where)


def feeds_of(model: onnx.ModelProto, inputs: Sequence[Any]) -> dict[str, Any]:
    """The inputs of a data set by name."""
    names = [i.name for i in model.graph.input]
    return {name: as_array(value) for name, value in zip(names, inputs, strict=False)}


def as_array(value: Any) -> Any:
    """A value of a data set as numpy array, list of arrays, or None."""
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, list):
        return [as_array(item) for item in value]
    return np.asarray(value) if isinstance(value, np.generic) else value


def run_ort(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """Outputs by ONNX Runtime's CPU provider, without its graph optimizations."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    wanted = {i.name for i in session.get_inputs()}
    feeds = {name: value for name, value in feeds_of(model, inputs).items() if name in wanted}
    return list(session.run(None, feeds))


def run_reference(model: onnx.ModelProto, inputs: Sequence[Any]) -> list[Any]:
    """Outputs by onnx's reference implementation."""
    from onnx.reference import ReferenceEvaluator

    logging.getLogger("onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(ReferenceEvaluator(model).run(None, feeds_of(model, inputs)))


def difference(output: Any, wanted: Any, rtol: float, atol: float, *, values: bool = True) -> str:
    """What differs between two outputs, empty where nothing does."""
    wanted = as_array(wanted)
    if isinstance(wanted, list) or isinstance(output, list):
        if not isinstance(output, list) or not isinstance(wanted, list) or len(output) != len(wanted):
            return "a sequence of another length"
        problems = [difference(a, b, rtol, atol, values=values) for a, b in zip(output, wanted, strict=True)]
        return next(filter(None, problems), "")
    if wanted is None or output is None:
        return "" if wanted is output else "an empty optional on one side"
    output, wanted = np.asarray(output), np.asarray(wanted)
    if output.shape != wanted.shape:
        return f"shape {output.shape}, expected {wanted.shape}"
    if output.dtype != wanted.dtype and {output.dtype.kind, wanted.dtype.kind} - set("OUST"):
        return f"type {output.dtype}, expected {wanted.dtype}"
    if not values:
        return ""
    if wanted.dtype.kind in "OUSb":
        return "" if np.array_equal(output.astype(object), wanted.astype(object)) else "other values"
    if wanted.dtype.kind == "V" or wanted.dtype.name in ("bfloat16", "float16") or "float8" in wanted.dtype.name:
        rtol, atol = max(rtol, 1e-2 if wanted.dtype.name == "bfloat16" else 2e-3), max(atol, 1e-3)
    if wanted.dtype.kind not in "iufc":
        output, wanted = output.astype(np.float64), wanted.astype(np.float64)
    atol = max(atol, noise(wanted))
    if np.allclose(output, wanted, rtol=rtol, atol=atol, equal_nan=True):
        return ""
    with np.errstate(all="ignore"):
        gap = np.nanmax(np.abs(output.astype(np.float64) - wanted.astype(np.float64))) if wanted.size else 0
    return f"values differ by up to {gap}"


def noise(wanted: np.ndarray) -> float:
    """What float32 can't tell beside the largest number of an output: sums that should come to nothing."""
    if wanted.dtype.kind not in "fc" or not wanted.size:
        return 0.0
    finite = np.abs(wanted[np.isfinite(wanted)])
    return 2e-7 * float(finite.max()) if finite.size else 0.0
