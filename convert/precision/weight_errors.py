"""What rounding does to each weight, read in chunks so that a big model's weights are never held whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from onnx import TensorProto

from convert.arrays import Array
from convert.bigmodel import tensor_array
from convert.precision.blame import WeightError
from convert.precision.rounding import Format, rounded
from convert.precision.stats import GROSS

CHUNK = 4 << 20


def weight_errors(tensors: Iterable[TensorProto], folder: Path, precision: str, fmt: Format) -> dict[str, WeightError]:
    """The error of every float32 weight in ``fp16`` or ``bf16``; ``folder``: where external ones lie."""
    wanted = [tensor for tensor in tensors if tensor.data_type == TensorProto.FLOAT]
    return {t.name: _error(tensor_array(t, folder), lambda part: rounded(part, precision), fmt) for t in wanted}


def _error(values: Array, rounder: Callable[[Array], Array], fmt: Format) -> WeightError:
    flat = values.reshape(-1)
    square = difference = most = reach = 0.0
    beyond = flushed = 0
    with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
        for begin in range(0, flat.size, CHUNK):
            part = np.asarray(flat[begin : begin + CHUNK])
            finite = part[np.isfinite(part)]
            if not finite.size:
                continue
            d = rounder(finite).astype(np.float64) - finite
            size = np.abs(finite)
            high = size >= fmt.overflows
            beyond += int(high.sum())
            flushed += int(((size > 0.0) & (size < fmt.normal)).sum())
            reach = max(reach, float(finite.min()), float(finite.max()), key=abs)
            square += float(np.dot(finite.astype(np.float64), finite))
            d = np.where(high, 0.0, d)
            difference += float(np.dot(d, d))
            most = max(most, float((np.abs(d) / np.where(size > 0.0, size, np.inf)).max()))
    made = float(np.sqrt(difference / square)) if square else 0.0
    count = max(flat.size, 1)
    return WeightError(
        made=GROSS if beyond else made,
        most=GROSS if beyond else most,
        rms=float(np.sqrt(square / count)),
        overflow=beyond / count,
        flushed=flushed / count,
        reach=reach,
        size=flat.size,
    )
