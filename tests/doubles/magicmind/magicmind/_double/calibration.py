"""Calibration: on a card or a remote, with data as the network wants them."""

import numpy as np

from magicmind._double.base import (
    OK,
    Code,
    DataType,
    Dims,
    Status,
    device_count,
    internal,
    invalid,
    log_error,
)
from magicmind._double.runtime import ACTIVE

QUANTIZED = {"Conv", "ConvTranspose", "MatMul", "Gemm"}


class QuantizationAlgorithm:
    LINEAR_ALGORITHM, EQNM_ALGORITHM = "linear", "eqnm"


class RemoteConfig:
    def __init__(self):
        self.address, self.device_id = "", 0


class CalibDataInterface:
    """What a caller derives from."""


class Calibrator:
    def __init__(self, series):
        self.series = list(series) if isinstance(series, list | tuple) else [series]
        self.remote = None

    def set_quantization_algorithm(self, algorithm):
        known = (QuantizationAlgorithm.LINEAR_ALGORITHM, QuantizationAlgorithm.EQNM_ALGORITHM)
        return OK if algorithm in known else invalid("unknown algorithm")

    def set_remote(self, remote):
        if not remote.address.endswith(":9009"):
            return Status(Code.UNAVAILABLE, f"can not connect to {remote.address}")
        self.remote = remote
        return OK

    def calibrate(self, network, config):
        from magicmind._double import execution

        if problem := self._problem(network, config):
            return problem
        samples = []
        while True:
            steps = [one.next() for one in self.series]
            if not all(isinstance(step, Status) for step in steps):
                return internal("next() gave no Status")
            if any(not step.ok() for step in steps):
                break
            arrays = [one.get_sample() for one in self.series]
            for one, tensor, array in zip(self.series, network.inputs, arrays, strict=True):
                if problem := sample_problem(one, tensor, array):
                    return problem
            samples.append(arrays)
        if steps[0].code() is not Code.OUT_OF_RANGE or not samples:
            return internal(f"no data: {steps[0]}")
        network.ranges = execution.ranges(network, samples, QUANTIZED)
        network.generation += 1
        return OK

    def _problem(self, network, config):
        if not config.mode.startswith("qint"):
            return invalid(f"precision_mode {config.mode} is not calibrated")
        if self.remote is None and not (ACTIVE and device_count()):
            return Status(Code.UNAVAILABLE, "no device is active")
        if len(self.series) != len(network.inputs):
            return internal(
                f"Got {len(network.inputs)} inputs from network, but {len(self.series)} from calibration file list"
            )
        if any(Dims(tensor.sizes).GetElementCount() < 0 for tensor in network.inputs):
            text = "Can not get elmentcount of calibration set, maybe there is one -1 in its shape."
            log_error("calibrator.cc:88", text)
            return internal(text)
        if network.wide() and not config.at("opt_config", "type64to32_conversion", default=False):
            return internal(f"data type INT64 of {network.wide()[0]} is not supported")
        return None


def sample_problem(one, tensor, array):
    if not isinstance(one, CalibDataInterface):
        return invalid("not a CalibDataInterface")
    if one.get_shape().GetDims() != tensor.sizes or list(np.shape(array)) != tensor.sizes:
        return invalid(f"shape of a sample of {tensor.name}")
    if one.get_data_type() is not tensor.kind or array.dtype != np.dtype(tensor.kind.value):
        return invalid(f"data type of a sample of {tensor.name}")
    if not array.flags["C_CONTIGUOUS"]:
        return invalid(f"a sample of {tensor.name} is not contiguous")
    return None


__all__ = ["CalibDataInterface", "Calibrator", "DataType", "QuantizationAlgorithm", "RemoteConfig"]
