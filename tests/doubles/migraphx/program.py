"""What the stand-ins for MIGraphX share: settings, reading a graph, the .mxr file, and running it with ONNX Runtime.

Settings by environment: MIGRAPHX_DOUBLE_VERSION (2.15.0), MIGRAPHX_DOUBLE_ARCH (the card; empty: none),
MIGRAPHX_DOUBLE_TARGETS (libraries that are installed: "gpu ref"), MIGRAPHX_DOUBLE_FAULT, MIGRAPHX_DOUBLE_FLOOD (MiB),
MIGRAPHX_DOUBLE_PIDS.
"""

import json
import os
import re
import warnings
from pathlib import Path

MAGIC = b"\x85MXR-double\n"
FAR = "/src/AMDMIGraphX/src/"

# Operators without a parser, and the version that brought some (migraphx-driver onnx -l of 2.16, tags of the releases).
NEVER = {
    *("AffineGrid", "BitShift", "BitwiseNot", "BitwiseOr", "BitwiseXor", "CenterCropPad", "Col2Im", "Compress"),
    *("CumProd", "DFT", "DeformConv", "Det", "MaxRoiPool", "MaxUnpool", "Mish", "Optional", "RMSNormalization"),
    *("STFT", "SequenceAt", "SequenceConstruct", "SplitToSequence", "StringConcat", "Swish", "TfIdfVectorizer"),
}
SINCE = {
    (2, 4): "Mod", (2, 5): "Trilu",
    (2, 8): "CastLike GroupNormalization LayerNormalization MeanVarianceNormalization QLinearConv QLinearMatMul Shrink",
    (2, 9): "DynamicQuantizeLinear Hardmax IsInf Unique", (2, 10): "Einsum Gelu",
    (2, 11): "BitwiseAnd GridSample NegativeLogLikelihoodLoss Scan SoftmaxCrossEntropyLoss",
    (2, 13): "Attention",
}  # fmt: skip
TYPES = {1: "float_type", 2: "uint8_type", 3: "int8_type", 6: "int32_type", 7: "int64_type", 9: "bool_type",
         10: "half_type", 11: "double_type", 16: "bf16_type"}  # fmt: skip
NUMPY = {"float_type": "float32", "uint8_type": "uint8", "int8_type": "int8", "int32_type": "int32",
         "int64_type": "int64", "bool_type": "bool", "half_type": "float16", "double_type": "float64"}  # fmt: skip


class Failure(Exception):
    """What MIGraphX throws: the text after ``what():``."""


def version():
    text = os.environ.get("MIGRAPHX_DOUBLE_VERSION", "2.15.0")
    numbers = [int(part) for part in text.split(".")]
    return text, (numbers[0], numbers[1])


def is_fork():
    return version()[1][0] >= 4


def level():
    return (2, 2) if is_fork() else version()[1]


def file_version():
    number = level()
    return 8 if number >= (2, 16) else 7 if number >= (2, 8) else 6 if number >= (2, 7) else 5


def arch():
    return os.environ.get("MIGRAPHX_DOUBLE_ARCH", "")


def fault():
    return os.environ.get("MIGRAPHX_DOUBLE_FAULT", "")


def check_target(name):
    if name not in os.environ.get("MIGRAPHX_DOUBLE_TARGETS", "gpu ref").split():
        raise Failure(
            f"{FAR}dynamic_loader.cpp:48: check_load_error: Dynamic loading or symbol lookup failed with"
            f" libmigraphx_{name}.so: cannot open shared object file: No such file or directory"
        )
    if name == "gpu" and not arch():
        raise Failure(f"{FAR}targets/gpu/device_name.cpp:48: get_hip_device: Failed to get device properties")


class Program:
    """A parsed or compiled program: the header of its file, and the graph."""

    def __init__(self, header, graph):
        self.header = header
        self.graph = graph

    def save(self):
        return MAGIC + json.dumps(self.header, sort_keys=True).encode() + b"\n" + self.graph

    @property
    def compiled(self):
        return bool(self.header["target"])


def load_mxr(data, name):
    if not data:
        raise Failure(f"{FAR}file_buffer.cpp:52: generic_read_file: Invalid size for: {name}")
    if not data.startswith(MAGIC):
        raise Failure(f"{FAR}value.cpp:371: at: Not an object for field: version")
    line, _, graph = data[len(MAGIC) :].partition(b"\n")
    header = json.loads(line)
    if header["file_version"] != file_version():
        raise Failure(
            f"{FAR}program.cpp:861: from_value: Error: Program version mismatch. MXR file was created using program"
            f" file version: {header['file_version']}, while installed MIGraphX is using program file version:"
            f" {file_version()}, Try regenerating MXR file using matching version of MIGraphX."
        )
    if header["unknown"]:
        raise Failure(f"{FAR}include/migraphx/ranges.hpp:112: at: Operator not found: unknown:{header['unknown'][0]}")
    return Program(header, graph)


def parse_onnx(path, dims=None, default=1, dim_params=None, skip_unknown=False):
    """Read an ONNX file. ``dims``: input → sizes; a size that is a list is a range [low, high]."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        if not Path(path).is_file():
            raise DecodeError
        model = onnx.load(path)
    except (DecodeError, ValueError):
        told = f"PARSE_FROM: Failed reading onnx file: {path}"
        raise Failure(f"{FAR}onnx/onnx_parser.cpp:272: parse_from: {told}") from None
    unknown = [node.op_type for node in model.graph.node if not _known(node.op_type)]
    if unknown and not skip_unknown:
        raise Failure(f"{FAR}onnx/onnx_parser.cpp:625: parse_graph: Unknown operator: {unknown[0]}")
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = [value for value in model.graph.input if value.name not in weights]
    for value in inputs:
        if value.type.tensor_type.elem_type not in TYPES:
            kind = value.type.tensor_type.elem_type
            raise Failure(f"{FAR}onnx/onnx_parser.cpp:770: get_type: Prototensor data type {kind} not supported")
    header = {
        "file_version": file_version(),
        "version": version()[0],
        "target": "",
        "arch": "",
        "precisions": [],
        "unknown": unknown,
        "scales": {},
        "offload": False,
        "types": {value.name: TYPES[value.type.tensor_type.elem_type] for value in inputs},
        "dims": {value.name: _sizes(value, dims or {}, default, dim_params or {}) for value in inputs},
    }
    return Program(header, model.SerializeToString())


def _known(op):
    if op in NEVER:
        return False
    return all(op not in names.split() or level() >= since for since, names in SINCE.items())


def _sizes(value, dims, default, dim_params):
    if value.name in dims:
        return dims[value.name]
    sizes = []
    for dim in value.type.tensor_type.shape.dim:
        if dim.HasField("dim_value"):
            sizes.append(dim.dim_value)
        else:
            sizes.append(dim_params.get(dim.dim_param, default))
    return sizes


def quantize(program, name, scales=None):
    if name in ("int8", "fp8"):
        if any(isinstance(size, list) for sizes in program.header["dims"].values() for size in sizes):
            raise Failure(f"{FAR}shape.cpp:455: lens: SHAPE: lens() called on a dynamic shape")
        program.header["scales"] = scales or {}
    program.header["precisions"].append(name)


def compile_for(program, target, offload):
    check_target(target)
    program.header.update(target=target, arch=arch() if target == "gpu" else "", offload=offload)


def describe(name, header):
    """A parameter as ``params`` prints it."""
    kind, sizes = header["types"][name], header["dims"][name]
    if any(isinstance(size, list) for size in sizes):
        parts = [f"[{size[0]}..{size[1]}]" if isinstance(size, list) else str(size) for size in sizes]
        return f"dynamic, {kind}, {{{', '.join(parts)}}}"
    strides = [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    shape = "{" + ", ".join(map(str, sizes)) + "}"
    return f"{kind}, {shape}, {{{', '.join(map(str, strides[: len(sizes)]))}}}"


# ------------------------------------------------------------------------------------------------------------- running


def evaluate(program, arrays):
    """Run on the CPU in the program's precision: weights, inputs and outputs are rounded to it."""
    import numpy as np
    import onnx

    header = program.header
    if header["target"] == "gpu" and header["arch"] != arch():
        told = "Failed to load module: no kernel image is available"
        raise Failure(f"{FAR}targets/gpu/kernel.cpp:70: load_module: {told}")
    model = onnx.ModelProto.FromString(program.graph)
    for name, kind in header["types"].items():
        _check_input(name, kind, header, arrays)
    from onnx import numpy_helper

    for tensor in model.graph.initializer:
        if tensor.data_type == 1:
            rounded = _rounded(numpy_helper.to_array(tensor), header["precisions"], None)
            tensor.CopyFrom(numpy_helper.from_array(rounded, tensor.name))
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    feeds = {name: _rounded(arrays[name], header["precisions"], header["scales"].get(name)) for name in header["types"]}
    outputs = session.run(None, feeds)
    wrong = 2 if fault() == "wrong" else 1
    return [
        _rounded(np.atleast_1d(out), [p for p in header["precisions"] if p != "int8"], None) * wrong
        if out.dtype == np.float32
        else out
        for out in outputs
    ]


def _check_input(name, kind, header, arrays):
    if name not in arrays:
        raise Failure(f"{FAR}program.cpp:520: operator(): Parameter not found: {name}")
    array, sizes = arrays[name], header["dims"][name]
    dynamic = any(isinstance(size, list) for size in sizes)
    fits = len(sizes) == array.ndim if dynamic else list(array.shape) == sizes
    if str(array.dtype) != NUMPY[kind] or not fits or not array.flags["C_CONTIGUOUS"] or 0 in sizes:
        given = f"{{{array.dtype}, {{{', '.join(map(str, array.shape))}}}}}"
        raise Failure(
            f"{FAR}program.cpp:531: operator(): Incorrect shape {given} for parameter: {name} should be:"
            f" {describe(name, header)}"
        )


def _rounded(array, precisions, scale):
    import ml_dtypes
    import numpy as np

    if array.dtype != np.float32:
        return array
    for precision in precisions:
        if precision == "fp16":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", RuntimeWarning)
                array = array.astype(np.float16).astype(np.float32)
        elif precision == "bf16":
            array = array.astype(ml_dtypes.bfloat16).astype(np.float32)
        elif precision == "fp8":
            array = array.astype(ml_dtypes.float8_e4m3fn).astype(np.float32)
        elif precision == "int8" and array.size:
            # Without data a default scale is used; it clips what is greater than one.
            step = np.float32((scale or float(np.abs(array).max()) or 1.0) / 127)
            array = np.clip(np.round(array / step), -127, 127).astype(np.float32) * step
    return array


def relaxed_json(text):
    """JSON whose keys need no quotes, as the driver takes it."""
    quoted = re.sub(r"([{,]\s*)([A-Za-z_]\w*)\s*:", r'\1"\2":', text)
    try:
        return json.loads(quoted)
    except ValueError as error:
        raise Failure(f"[json.exception.parse_error.101] parse error at line 1, column {error.args}") from None


def range_of(entry):
    """A size or a range of relaxed JSON, as this version reads it: the form it doesn't know is dimension 0."""
    if isinstance(entry, int):
        return entry
    if level() >= (2, 16):
        found = entry.get("range", {"min": 0, "max": 0})
    else:
        found = {"min": entry["min"], "max": entry["max"]} if "min" in entry else {"min": 0, "max": 0}
    return 0 if found["max"] == 0 else [found["min"], found["max"]]
