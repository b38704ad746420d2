"""Two models on the same inputs: are their outputs equal?

Inputs are the samples given and random ones of two sizes for symbolic dimensions, seeded, so that a proof can be
repeated. Integers and booleans must be the same; floats within ``RTOL`` of the number and ``ATOL`` of the greatest
number of the output; NaN and Inf at the same places.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, TensorProto
from onnx.reference import ReferenceEvaluator
from onnxruntime.capi import onnxruntime_pybind11_state

from artifacts.errors import first_line

RTOL, ATOL = 1e-3, 1e-5
SIZES = (2, 3)
SEED = 20240601
ort: Any = import_module("onnxruntime")
Feeds = Mapping[str, Any]
FAILURES: tuple[type[Exception], ...] = (
    RuntimeError,
    ValueError,
    *(v for v in vars(onnxruntime_pybind11_state).values() if isinstance(v, type) and issubclass(v, Exception)),
)
"""ONNX Runtime's errors have no base class of their own."""
REFERENCE_FAILURES: tuple[type[Exception], ...] = (*FAILURES, KeyError, TypeError, IndexError, AttributeError)


class NotRun(Exception):
    """ONNX Runtime does not run a model on some inputs."""


def prove(
    before: ModelProto,
    after: ModelProto,
    samples: Sequence[Feeds],
    folder: str,
    *,
    repairs: bool = False,
    allowed: float = 0.0,
) -> tuple[dict[str, Any], str]:
    """The evidence, and what speaks against it (empty where they are equal on every input that ran).

    ``allowed``: the relative L2 by which an output may differ; 0 asks for equal numbers.
    """
    try:
        new = _session(after, folder)
    except NotRun as error:
        return {}, f"ONNX Runtime does not load the result: {error}"
    evidence: dict[str, Any] = {"runtime": f"onnxruntime {ort.__version__}", "inputs": 0, "max_abs": 0.0}
    if allowed:
        evidence["allowed_rel_l2"] = allowed
    try:
        old = _session(before, folder)
    except NotRun as error:
        evidence["before"] = f"does not load: {error}"
        if repairs:
            return evidence, ""
        old = _reference(before)
        evidence["reference"] = f"onnx.reference {onnx.__version__}"
    for feeds in (*samples, *random_feeds(after, before)):
        try:
            expected = _run(old, feeds)
        except NotRun:
            continue
        try:
            found = _run(new, feeds)
        except NotRun as error:
            return evidence, f"ONNX Runtime does not run the result: {error}"
        problem, gap = _difference(found, expected, allowed)
        if problem:
            return evidence, problem
        evidence["inputs"] += 1
        evidence["max_abs"] = max(evidence["max_abs"], gap)
    if not evidence["inputs"]:
        return evidence, "the model runs on none of the inputs at hand, so nothing is proven: give samples"
    return evidence, ""


def _session(model: ModelProto, folder: str) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    providers = ["CPUExecutionProvider"]
    try:
        if not folder:
            return ort.InferenceSession(model.SerializeToString(), options, providers=providers)
        with tempfile.NamedTemporaryFile(dir=folder, suffix=".onnx") as stream:
            onnx.save_model(model, stream.name)
            return ort.InferenceSession(str(Path(stream.name)), options, providers=providers)
    except FAILURES as error:
        raise NotRun(first_line(error)) from error


def _reference(model: ModelProto) -> Any:
    """onnx's own implementation, which has the kernels that ONNX Runtime lacks; None where it can't take the model."""
    try:
        return ReferenceEvaluator(model)
    except REFERENCE_FAILURES:
        return None


def _run_reference(evaluator: ReferenceEvaluator, feeds: Feeds) -> list[Any]:
    wanted = set(evaluator.input_names)
    try:
        return list(evaluator.run(None, {name: value for name, value in feeds.items() if name in wanted}))
    except REFERENCE_FAILURES as error:
        raise NotRun(first_line(error)) from error


def _run(session: Any, feeds: Feeds) -> list[Any]:
    if session is None:
        raise NotRun("nothing runs the model")
    if isinstance(session, ReferenceEvaluator):
        return _run_reference(session, feeds)
    wanted = {info.name for info in session.get_inputs()}
    try:
        return list(session.run(None, {name: value for name, value in feeds.items() if name in wanted}))
    except FAILURES as error:
        raise NotRun(first_line(error)) from error


def random_feeds(model: ModelProto, signature: ModelProto) -> Iterator[Feeds]:
    """Seeded inputs: normal floats, small integers; a dimension that ``model`` fixes is fixed."""
    fixed = {info.name: info for info in model.graph.input}
    weights = {tensor.name for tensor in signature.graph.initializer}
    inputs = [fixed.get(info.name, info) for info in signature.graph.input if info.name not in weights]
    for size in SIZES:
        generator = np.random.default_rng(SEED + size)
        feeds = {info.name: _random(info, size, generator) for info in inputs}
        if all(value is not None for value in feeds.values()):
            yield feeds


def _random(info: onnx.ValueInfoProto, size: int, generator: np.random.Generator) -> np.ndarray | None:
    if not info.type.HasField("tensor_type") or info.type.tensor_type.elem_type == TensorProto.STRING:
        return None
    dims = info.type.tensor_type.shape.dim
    shape = [dim.dim_value if dim.HasField("dim_value") else size for dim in dims]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(bool)
    if dtype.kind in "iu":
        return generator.integers(0, 2, shape).astype(dtype)
    return np.asarray(generator.standard_normal(shape)).astype(dtype)


def _difference(found: list[Any], expected: list[Any], allowed: float = 0.0) -> tuple[str, float]:
    """What differs between two lists of outputs, and the greatest gap between numbers."""
    if len(found) != len(expected):
        return f"{len(found)} outputs in the place of {len(expected)}", 0.0
    worst = 0.0
    for index, (one, other) in enumerate(zip(found, expected, strict=True)):
        if isinstance(other, list):
            problem, gap = _difference(list(one), other, allowed)
        else:
            problem, gap = _array_difference(np.asarray(one), np.asarray(other), allowed)
        if problem:
            return f"output {index}: {problem}", gap
        worst = max(worst, gap)
    return "", worst


def _array_difference(one: np.ndarray, other: np.ndarray, allowed: float) -> tuple[str, float]:
    if one.shape != other.shape or one.dtype != other.dtype:
        return f"{one.dtype}{list(one.shape)} in the place of {other.dtype}{list(other.shape)}", 0.0
    if other.dtype.kind not in "fc":
        return ("" if np.array_equal(one, other) else "other values"), 0.0
    finite = np.isfinite(other)
    same_gaps = np.array_equal(np.isfinite(one), finite) and np.array_equal(
        one[~finite], other[~finite], equal_nan=True
    )
    if not same_gaps:
        return "NaN or Inf at other places", 0.0
    if not finite.any():
        return "", 0.0
    left, right = one[finite].astype(np.float64), other[finite].astype(np.float64)
    gap = np.abs(left - right)
    if allowed:
        share = float(np.linalg.norm(left - right) / (np.linalg.norm(right) or 1.0))
        return ("" if share <= allowed else f"relative L2 is {share:.3g}, above {allowed:g}"), float(gap.max())
    bound = RTOL * np.abs(right) + ATOL * max(1.0, float(np.abs(right).max()))
    return ("" if (gap <= bound).all() else f"numbers differ by up to {gap.max():.3g}"), float(gap.max())
