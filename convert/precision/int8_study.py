"""A study of int8: the candidate is the quantized graph itself, whose pairs ONNX Runtime computes as they stand."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from convert.arrays import Array, load_npz
from convert.bigmodel import tensor_array
from convert.precision.blame import WeightError
from convert.precision.calibrate import Range, calibrated
from convert.precision.emulate import Candidate
from convert.precision.qdq import axis_of, products, quantized_model, scales_of
from convert.precision.rounding import INT8_HIGH, INT8_LOW, int8_rounded
from convert.precision.stats import Rounder
from convert.precision.study import Study
from convert.values import Note, OnnxGraph


class Int8Study(Study):
    """The same study with ranges, and scales in place of a format."""

    ranges: Mapping[str, Range]
    _scales: dict[str, tuple[float, int]]
    _products: dict[str, tuple[str, ...]]

    def keepable(self, name: str) -> bool:
        """Only products are quantized."""
        return name in self._products

    def owners(self, value: str) -> list[str]:
        """The products that take or give a value: it is rounded for them alone."""
        return [name for name, values in self._products.items() if value in values]

    def candidate(self, keep: frozenset[str]) -> Candidate:
        """The graph with its products in int8."""
        self._calibrate()
        made = quantized_model(self.model, self.ranges, keep, weights=self.graph.model_path.parent)
        self._scales = scales_of(made)
        return Candidate(made)

    def rounder(self) -> Rounder:
        """Each value with the scale of its tensor; those that no product takes or gives are not rounded."""
        scales = np.array([self._scales.get(name, (np.nan, 0))[0] for name in self.tensors], np.float32)

        def rounded(values: Array, tensors: Array) -> Array:
            step = scales[tensors] if scales.size else np.full(values.shape, np.nan, np.float32)
            with np.errstate(invalid="ignore", over="ignore"):
                held = np.clip(np.rint(values / step), INT8_LOW, INT8_HIGH) * step
            result: Array = np.where(np.isnan(step), values, held).astype(np.float32)
            return result

        return rounded

    def _weight_errors(self) -> dict[str, WeightError]:
        self._scales = {}
        self._products = products(self.model)
        folder, errors = self.graph.model_path.parent, {}
        for step in self.flow.steps:
            tensor = self.flow.weights.get(step.inputs[1]) if len(step.inputs) > 1 else None
            if step.name in self._products and tensor is not None and self.flow.floats((tensor.name,)):
                values = np.asarray(tensor_array(tensor, folder))
                errors[tensor.name] = _error(values, int8_rounded(values, axis=axis_of(step.op, tensor)))
        return errors

    def _calibrate(self) -> None:
        if hasattr(self, "ranges"):
            return
        self.passes += 1
        wanted = {name for values in self._products.values() for name in values if name not in self.flow.weights}
        self.ranges = calibrated(
            self.model,
            wanted,
            calibration_feeds(self.graph),
            self.options.calibration,
            weights=self.graph.model_path.parent,
            scratch=self.scratch / "calibration",
        )
        self.notes = (*self.notes, calibration_note(self.graph, self.options.calibration))


def _error(values: Array, rounded: Array) -> WeightError:
    if not values.size:
        return WeightError()
    d = rounded.astype(np.float64) - values
    square = float(np.square(values, dtype=np.float64).mean())
    made = float(np.sqrt(np.square(d).mean() / square)) if square else 0.0
    return WeightError(made=made, most=made, rms=float(np.sqrt(square)), size=values.size)


def calibration_feeds(graph: OnnxGraph) -> Iterator[dict[str, Array]]:
    """The inputs to calibrate with: those given for it, else the samples."""
    kind, count = (
        ("calibration", graph.calibration_count) if graph.calibration_count else ("samples", graph.sample_count)
    )
    for number in range(count):
        yield load_npz(graph.path(f"{kind}/{number:03d}.npz"))


def calibration_note(graph: OnnxGraph, method: str) -> Note:
    """What int8 ranges were taken from."""
    if graph.calibration_count:
        return Note(text=f"int8: ranges ({method}) from {graph.calibration_count} calibration inputs")
    text = f"int8: ranges ({method}) from the {graph.sample_count} samples: --calibration gives inputs made for it"
    return Note(level="warning", text=text)
