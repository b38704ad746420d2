"""A strict stand-in for the Python module ``migraphx``: what a converter uses of it."""

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))
import program as mx

__version__ = mx.version()[0] + ".dev"


class argument:  # noqa: N801
    def __init__(self, array):
        if mx.TYPES and str(array.dtype) not in mx.NUMPY.values():
            raise RuntimeError("MIGRAPHX PYTHON: Unsupported data type")
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array if dtype is None else self.array.astype(dtype)


class shape:  # noqa: N801
    def __init__(self, name, header):
        self._name, self._header = name, header

    def lens(self):
        sizes = self._header["dims"][self._name]
        if any(isinstance(size, list) for size in sizes):
            raise RuntimeError(f"{mx.FAR}shape.cpp:455: lens: SHAPE: lens() called on a dynamic shape")
        return sizes

    def __repr__(self):
        return mx.describe(self._name, self._header)


class program:  # noqa: N801
    def __init__(self, inner):
        self._inner = inner
        self._built = dict(inner.header["dims"])

    def get_parameter_names(self):
        return list(self._inner.header["types"])

    def get_parameter_shapes(self):
        return {name: shape(name, self._inner.header) for name in self._inner.header["types"]}

    def is_compiled(self):
        return self._inner.compiled

    def compile(self, target, offload_copy=True, fast_math=True, **more):
        allowed = {"exhaustive_tune"} if mx.level() >= (2, 6) else set()
        if set(more) - allowed:
            raise TypeError(f"compile(): incompatible function arguments: {sorted(more)}")
        _wrapped(mx.compile_for, self._inner, target.name, offload_copy)

    def run(self, arrays):
        given = {name: np.asarray(array) for name, array in arrays.items()}
        return [argument(array) for array in _wrapped(mx.evaluate, self._inner, given)]


if mx.is_fork():

    def _reshape(self, inputs):
        """Up to the sizes that it was built for, smaller and larger in turn, as DTK's tutorials do it."""
        for name, sizes in inputs.items():
            if any(new > old for new, old in zip(sizes, self._built[name], strict=True)):
                raise RuntimeError(f"reshape: {name} is larger than the program was built for")
            self._inner.header["dims"][name] = sizes

    program.reshape = _reshape


class target:  # noqa: N801
    def __init__(self, name):
        self.name = name


def _wrapped(function, *args):
    try:
        return function(*args)
    except mx.Failure as failure:
        raise RuntimeError(str(failure)) from None


def get_target(name):
    _wrapped(mx.check_target, name)
    return target(name)


def parse_onnx(
    filename,
    default_dim_value=0,
    map_input_dims=None,
    skip_unknown_operators=False,
    print_program_on_error=False,
    max_loop_iterations=10,
):
    return program(_wrapped(mx.parse_onnx, filename, map_input_dims or {}, default_dim_value or 1))


def quantize_fp16(p, ins_names=("all",)):
    mx.quantize(p._inner, "fp16")


if mx.level() >= (2, 12):

    def quantize_bf16(p, ins_names=("all",)):
        mx.quantize(p._inner, "bf16")


def _calibrated(p, name, calibration):
    scales = {}
    for sample in calibration:
        for key, value in sample.items():
            if not isinstance(value, argument):
                raise TypeError(f"quantize_{name}(): incompatible function arguments: values must be migraphx.argument")
            if value.array.dtype == np.float32:
                scales[key] = max(scales.get(key, 0.0), float(np.abs(value.array).max()))
    _wrapped(mx.quantize, p._inner, name, scales)


def quantize_int8(p, t, calibration=(), ins_names=("dot", "convolution")):
    _calibrated(p, "int8", calibration)


if mx.level() >= (2, 9):

    def quantize_fp8(p, t, calibration=()):
        _calibrated(p, "fp8", calibration)


def save(p, filename, format="msgpack"):
    Path(filename).write_bytes(p._inner.save())


def load(filename, format="msgpack"):
    return program(_wrapped(mx.load_mxr, Path(filename).read_bytes(), Path(filename).name))


def to_gpu(value):
    mx.check_target("gpu")
    return value


def from_gpu(value):
    return value


def allocate_gpu(of):
    raise RuntimeError(f"nothing to allocate for {of}")
