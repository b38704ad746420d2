"""ONNX Runtime sessions: the one place that makes and runs them (in the worker: imports onnxruntime).

Sessions never spin while they wait, never print, and keep big weights in the page cache instead of copying them. What
ONNX Runtime raises becomes :class:`SessionFailed` with one line that holds no path of its build machine.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import mmap
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import msgspec
import numpy as np
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as native
from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession, OrtValue

from convert.inline import GRAPH, MAPPED_FROM, skeleton
from convert.loading.wire import Buffer, WireError, fields

Array = np.ndarray[Any, np.dtype[Any]]
Level = Literal["off", "basic", "extended", "all"]
Kind = Literal["not_implemented", "invalid", "run", "feed", "memory"]

BIG_FROM = 256 << 20
"""From this many bytes of model on, a session maps weights and rewrites nothing."""
MANY_NODES = 10_000
SLOW_ON_MANY = ("NchwcTransformer",)
"""What a session of so many nodes leaves out: measured at 1 s for 10,000 nodes in a chain and 5 s for 30,000 (1.32)."""
QUIET = 4
"""Fatal errors only: everything else comes as an exception."""
NODE = 1
"""The field of GraphProto (onnx.proto)."""
CPU = "CPUExecutionProvider"
DATA_FOLDER = "session.model_external_initializers_file_folder_path"
"""Where the external data of a model lie that is handed over as bytes (onnxruntime_session_options_config_keys.h)."""

LEVELS = {
    "off": native.GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": native.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": native.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "all": native.GraphOptimizationLevel.ORT_ENABLE_ALL,
}


class SessionFailed(Exception):
    """ONNX Runtime refused a model, its inputs, or failed to run it. ``str()`` is one clean line."""

    def __init__(self, kind: Kind, line: str) -> None:
        super().__init__(line)
        self.kind = kind


class SessionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a session is made. ``big``: map weights, no prepacking, no arena, no rewriting. ``threads`` 0: all cores.

    ``mapped``: the weights inside the model file are mapped instead of copied into memory twice.
    """

    level: Level = "all"
    threads: int = 0
    big: bool = False
    mapped: bool = False
    as_listed: bool = False
    """Run nodes in the order of the model where that is one: what reads a tensor runs before it is done with."""
    frugal: bool = False
    """The same, and ask for memory when it is needed: a plan of all of it has places for tensors that never meet."""
    save_to: str = ""
    """Write the optimized model here while the session is made."""
    fold_limit: int = 0
    """Fold no constant into more than this many bytes; 0: no limit."""
    providers: tuple[str, ...] = (CPU,)


def settings_for(model: Path) -> SessionSettings:
    """Settings by the size of a model file and of the data files beside it that share its name."""
    size = sum(path.stat().st_size for path in (model, model.with_name(f"{model.name}.data")) if path.is_file())
    return SessionSettings(level="off", big=True) if size >= BIG_FROM else SessionSettings()


def exact_settings(model: Path) -> SessionSettings:
    """Settings for reference outputs: the graph as it stands, no node fused or folded."""
    mapped = model.is_file() and model.stat().st_size >= MAPPED_FROM
    return msgspec.structs.replace(settings_for(model), level="off", mapped=mapped)


def open_session(model: Path | bytes, settings: SessionSettings | None = None) -> InferenceSession:
    """A session of a model file (or of a serialized model without external data).

    Raises :class:`SessionFailed`: ``not_implemented`` where a kernel is missing, else ``invalid``.
    """
    chosen = settings or (settings_for(model) if isinstance(model, Path) else SessionSettings())
    # The environment's own logger speaks before a session exists.
    native.set_default_logger_severity(QUIET)
    many = has_many_nodes(model)
    options = _options(chosen, many=many)
    source = model if isinstance(model, bytes) else str(model)
    if chosen.mapped and isinstance(model, Path):
        with contextlib.suppress(WireError):
            source = skeleton(model)
            options.add_session_config_entry(DATA_FOLDER, str(model.parent))
    try:
        left_out = SLOW_ON_MANY if chosen.level == "all" and many else ()
        return InferenceSession(source, options, providers=list(chosen.providers), disabled_optimizers=left_out)
    except ERRORS as error:
        kind: Kind = "not_implemented" if "NOT_IMPLEMENTED" in str(error) else "invalid"
        raise SessionFailed(kind, clean_line(str(error))) from error
    except MemoryError as error:
        raise SessionFailed("memory", "not enough memory to load the model") from error


def has_many_nodes(model: Path | bytes) -> bool:
    """Whether a model's main graph has at least :data:`MANY_NODES`; false for what is no model."""
    if isinstance(model, bytes):
        return _counts_many(model)
    try:
        with model.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _counts_many(data)
    except (OSError, ValueError):
        # ONNX Runtime says what is wrong with a file that is not there, or is empty.
        return False


def _counts_many(data: Buffer) -> bool:
    with contextlib.suppress(WireError):
        for graph in fields(data, 0, len(data)):
            if graph.number == GRAPH:
                nodes = (field for field in fields(data, graph.start, graph.end) if field.number == NODE)
                return next(itertools.islice(nodes, MANY_NODES - 1, None), None) is not None
    return False


def _options(settings: SessionSettings, *, many: bool) -> native.SessionOptions:
    options = native.SessionOptions()
    options.graph_optimization_level = LEVELS[settings.level]
    options.intra_op_num_threads = settings.threads or len(os.sched_getaffinity(0))
    options.inter_op_num_threads = 1
    options.log_severity_level = QUIET
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if settings.big or settings.mapped or settings.save_to:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if settings.big:
        options.enable_cpu_mem_arena = False
    if settings.big or settings.frugal or many:
        # The plan of memory looks, for each tensor, at all that are held at its time.
        options.enable_mem_pattern = False
    if settings.big or settings.as_listed or settings.frugal:
        # The default order runs all casts of weights before anything else, and then holds every weight twice.
        options.execution_order = native.ExecutionOrder.PRIORITY_BASED
    if settings.fold_limit:
        entry = "optimization.constant_folding_max_output_size_in_bytes"
        options.add_session_config_entry(entry, str(settings.fold_limit))
    if settings.save_to:
        options.optimized_model_filepath = settings.save_to
    return options


def run_session(session: InferenceSession, feeds: Mapping[str, Array]) -> list[Array]:
    """Run a session once; outputs in the order of the model. Feeds that the model does not take are left out.

    Raises :class:`SessionFailed`: ``feed`` for a missing input or a wrong dtype, ``run`` for a failure at run time.
    """
    inputs, outputs = session.get_inputs(), session.get_outputs()
    checked = {node.name: _checked(node.name, node.type, feeds) for node in inputs}
    special = [node.type for node in (*inputs, *outputs) if element_type(node.type) in SPECIAL]
    try:
        answer = _run_special(session, checked) if special else session.run(None, checked)
    except ERRORS as error:
        # ONNX Runtime's own words where its allocator gets nothing.
        kind: Kind = "memory" if "Failed to allocate memory" in str(error) else "run"
        raise SessionFailed(kind, clean_line(str(error))) from error
    except MemoryError as error:
        raise SessionFailed("memory", "not enough memory to run the model") from error
    odd = [node.name for node, value in zip(outputs, answer, strict=True) if not isinstance(value, np.ndarray)]
    if odd:
        raise SessionFailed("run", f"outputs that are no tensors can't be compared: {', '.join(odd)}")
    return cast(list[Array], answer)


def stream_samples(
    model: Path, feeds: Iterable[Mapping[str, Array]], settings: SessionSettings | None = None
) -> Iterator[list[Array]]:
    """Run a model on samples one after another; one sample's outputs at a time are held."""
    session = open_session(model, settings)
    for feed in feeds:
        yield run_session(session, feed)


def run_samples(
    model: Path, feeds: Sequence[Mapping[str, Array]], settings: SessionSettings | None = None
) -> list[list[Array]]:
    """Run a model on each of a few samples: per sample, the outputs in the order of the model."""
    return list(stream_samples(model, feeds, settings))


# -------------------------------------------------------------------------------------------------- types and arrays


def element_type(text: str) -> int:
    """``TensorProto.FLOAT`` for ``tensor(float)``; 0 for sequences, maps and what ONNX does not know."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return TYPES.get(name, 0) if text.startswith("tensor(") else 0


TYPES = {name.lower(): number for name, number in TensorProto.DataType.items()}
SPECIAL = {
    number
    for name, number in TensorProto.DataType.items()
    if name == "BFLOAT16" or name.startswith(("FLOAT8", "FLOAT4", "INT4", "UINT4", "INT2", "UINT2"))
}
"""Types that numpy lacks: they go in and out as raw bytes."""


def dtype_of(text: str) -> np.dtype[Any] | None:
    """The numpy (or ``ml_dtypes``) dtype of ``tensor(float16)``; None where there is none."""
    number = element_type(text)
    return None if number in (0, TensorProto.STRING) else np.dtype(helper.tensor_dtype_to_np_dtype(number))


def _checked(name: str, kind: str, feeds: Mapping[str, Array]) -> Array:
    if name not in feeds:
        raise SessionFailed(
            "feed", f"no value for the input {name!r}; there are values for {', '.join(feeds) or 'none'}"
        )
    array = np.asarray(feeds[name])
    wanted = dtype_of(kind)
    if wanted is not None and array.dtype != wanted:
        raise SessionFailed("feed", f"input {name!r} takes {wanted.name}, and the sample holds {array.dtype.name}")
    # ascontiguousarray would make a scalar one-dimensional.
    return array if array.flags.c_contiguous else array.copy(order="C")


def _run_special(session: InferenceSession, feeds: Mapping[str, Array]) -> list[Any]:
    types = {node.name: element_type(node.type) for node in session.get_inputs()}
    values = {name: _ort_value(array, types[name]) for name, array in feeds.items()}
    answer = session.run_with_ort_values(None, values)
    return [_array(value) for value in answer]


def _ort_value(array: Array, number: int) -> OrtValue:
    if number not in SPECIAL:
        return OrtValue.ortvalue_from_numpy(array)
    plain = array.view(f"u{array.dtype.itemsize}")
    return OrtValue.ortvalue_from_numpy_with_onnx_type(plain, number)


def _array(value: OrtValue) -> Any:
    number = element_type(value.data_type()) if value.is_tensor() else 0
    if number not in SPECIAL:
        return value.numpy()
    dtype = helper.tensor_dtype_to_np_dtype(number)
    size = int(np.prod(value.shape(), dtype=np.int64)) * dtype.itemsize
    data = ctypes.string_at(value.data_ptr(), size) if size else b""
    return np.frombuffer(data, dtype).reshape(value.shape()).copy()


# ------------------------------------------------------------------------------------------------------------- errors


def _error_types() -> tuple[type[Exception], ...]:
    found = [kind for kind in vars(native).values() if isinstance(kind, type) and issubclass(kind, Exception)]
    return (*found, RuntimeError, ValueError, TypeError, IndexError)


ERRORS = _error_types()
"""What ONNX Runtime raises: its own classes, and what pybind11 makes of C++ exceptions."""

_NOISE = (
    re.compile(r"^\[ONNXRuntimeError\] : \d+ : [A-Z_]+ : "),
    re.compile(r"/\S*onnxruntime/\S+\.(?:cc|h|cpp)(?::\d+)?"),
    re.compile(r"^\s*\S+\(.*\)(?: const)?\s+(?=\S.* was false)"),
    re.compile(r"\b(?:onnxruntime::)[\w:<>~]+\(.*?\)(?: \[with [^\]]*\])?(?: const)?"),
    re.compile(r"^Exception during (?:initialization|loading): "),
    re.compile(r"\s+"),
)
_FOLDER = re.compile(r"/[^\s:'\"]*/(?=[^/\s:'\"]+\.(?:onnx|data|bin|pb|cc|h)\b)")
_LOADED_FROM = re.compile(r"(?<=\bmodel from )/.*?/([^/]+)(?= failed)|(?<=\bmodel )/.*?/([^/]+)(?= failed)")
"""Names of nodes look like paths too (``/layers.0/attn/MatMul``) and stay."""


def clean_line(text: str, *, limit: int = 400) -> str:
    """One line of what ONNX Runtime says, without codes, source positions and paths; at most ``limit`` characters."""
    for pattern in _NOISE:
        text = pattern.sub(" ", text).strip()
    text = _FOLDER.sub("", _LOADED_FROM.sub(r"\1\2", text)).strip(" :")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
