"""Running a torch model and exporting it: everything that touches ``torch.onnx`` (worker only, imports torch)."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import io
import shutil
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from onnx import ModelProto

from convert.arrays import Array
from convert.exporter_faults import Exported, SilentFault
from convert.graphs import EXTERNAL_FROM, MODEL, read_model
from convert.inline import MAPPED_FROM
from convert.loading.torch_models import Call, OpenModel, to_array
from convert.loading.user_code import one_line as plain_line
from convert.torch_symbolics import mended_symbolics
from convert.torch_weights import able, export_apart
from convert.values import DimRange, LoadedModel, TensorSpec

_jit: Any = torch.jit
HIDES = -1e4
"""A float input that holds a number at or below this is taken for an additive mask."""
_export: Any = torch.onnx.export


class ExporterFailed(Exception):
    """One exporter could not do it, or its graph is wrong; the text is one line."""


@dataclasses.dataclass(frozen=True)
class Route:
    """One way of exporting: with which of torch's exporters, at which opset (0: its own), and by which detour.

    ``script``: a module is compiled to a script first, which keeps its branches; ``program``: a script becomes an
    exported program first, which dynamo takes.
    """

    exporter: Literal["dynamo", "torchscript"]
    asked: int = 0
    detour: Literal["", "script", "program"] = ""

    @property
    def name(self) -> str:
        """How reports call it."""
        if self.asked:
            return f"{self.exporter} (at opset {self.asked}, lowered)"
        return f"{self.exporter} (of the model as a {self.detour})" if self.detour else self.exporter


@dataclasses.dataclass(frozen=True)
class TorchRun:
    """What torch gave for one call: tensors in order, their names, and what else stood among the outputs."""

    names: tuple[str, ...]
    outputs: list[Array]
    left_out: tuple[str, ...]
    plain: bool
    """The model gives a tensor or a flat tuple of tensors, as exporters like it."""


def run_torch(model: OpenModel, call: Call) -> TorchRun:
    """Run a model in inference mode on one call. Raises :class:`ExporterFailed` with torch's own words in one line."""
    try:
        # Without the profiling executor, which compiles a script anew in its first runs: we run it a few times only.
        with torch.inference_mode(), _jit.optimized_execution(False):
            result = model.run(call.mapped(torch.Tensor.clone))  # a model may change its inputs in place
    except Exception as error:
        raise ExporterFailed(f"the model itself fails on the sample: {one_line(error)}") from error
    found: list[tuple[str, torch.Tensor]] = []
    left_out: list[str] = []
    _flatten(result, "", found, left_out)
    if not found:
        raise ExporterFailed(f"the model gives no tensor (it gives {type(result).__name__})")
    names = tuple(name or "output" for name, _ in found)
    plain = isinstance(result, torch.Tensor) or (
        isinstance(result, (tuple, list)) and all(isinstance(item, torch.Tensor) for item in result)
    )
    return TorchRun(names, [to_array(tensor) for _, tensor in found], tuple(left_out), plain)


def _flatten(tree: Any, name: str, found: list[tuple[str, torch.Tensor]], left_out: list[str]) -> None:
    """Tensors of an output in order, named by key, field or position."""
    if isinstance(tree, torch.Tensor):
        found.append((name, tree))
        return
    items = _items(tree)
    if items is None:
        where = name or "the output"
        left_out.append(f"{where} is no tensor but {_shown(tree)}; it is not part of the graph")
        return
    for key, item in items:
        position = f"output_{key}" if isinstance(key, int) and not name else str(key)
        _flatten(item, f"{name}.{key}" if name else position, found, left_out)


def _items(tree: Any) -> list[tuple[str | int, Any]] | None:
    if isinstance(tree, Mapping):
        return [(str(key), item) for key, item in tree.items()]
    if hasattr(tree, "_fields"):
        return [(field, getattr(tree, field)) for field in tree._fields]
    if isinstance(tree, (tuple, list)):
        return list(enumerate(tree))
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        return [(field.name, getattr(tree, field.name)) for field in dataclasses.fields(tree)]
    return None


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, (int, float, bool, str, type(None))) else f"a {type(value).__name__}"


class TensorOutputs(torch.nn.Module):
    """A model whose outputs are flattened to a tuple of tensors, as ONNX can say them."""

    def __init__(self, inner: Any) -> None:
        super().__init__()
        self.inner = inner
        # The exporter puts a subject back into the mode that it had, with all its parts: dropout would drop afterwards.
        self.eval()

    def forward(self, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        """The inner model's tensors, in the order of :func:`run_torch`."""
        found: list[tuple[str, torch.Tensor]] = []
        _flatten(self.inner(*args, **kwargs), "", found, [])
        return tuple(tensor for _, tensor in found)


def export_with(
    route: Route, model: OpenModel, loaded: LoadedModel, call: Call, opset: int, *, folder: Path, plain: bool
) -> Exported:
    """Export with one of torch's exporters; big weights lie in ``folder``, referred to by the proto.

    Raises :class:`ExporterFailed` in one clean line.
    """
    run = _dynamo if route.exporter == "dynamo" else _torchscript
    try:
        with warnings.catch_warnings(record=True) as told, torch.no_grad():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", category=_jit.TracerWarning)
            detoured = _detoured(route, model, loaded, call, plain=plain)
            proto = run(detoured, loaded, call.mapped(torch.Tensor.clone), opset, folder=folder, plain=plain)
    except ExporterFailed:
        raise
    except Exception as error:
        raise ExporterFailed(one_line(error)) from error
    frozen = [f"{Path(one.filename).name}:{one.lineno}" for one in told if _by_value(one)]
    return Exported(proto, tuple(dict.fromkeys(frozen)))


def _detoured(route: Route, model: OpenModel, loaded: LoadedModel, call: Call, *, plain: bool) -> OpenModel:
    """The model as its route wants it. Raises :class:`ExporterFailed` where the detour can't keep what it must."""
    if not route.detour:
        return model
    if not plain or call.kwargs:
        raise ExporterFailed(f"a {route.detour} of it would lose the names of its inputs or outputs")
    if route.detour == "script":
        return dataclasses.replace(model, module=_jit.script(model.module))
    if any(isinstance(dim, str) for spec in loaded.inputs for dim in spec.shape):
        raise ExporterFailed("a program made of a script has fixed sizes only")
    converter: Any = importlib.import_module("torch._export.converter")
    args = call.mapped(torch.Tensor.clone).args
    return dataclasses.replace(model, program=converter.TS2EPConverter(model.module, args).convert())


def _by_value(warning: warnings.WarningMessage) -> bool:
    """Whether a tracer's warning is about a branch, a loop or a number that it takes from the sample's values."""
    return issubclass(warning.category, _jit.TracerWarning) and "Converting a tensor" in str(warning.message)


def _dynamo(model: OpenModel, loaded: LoadedModel, call: Call, opset: int, *, folder: Path, plain: bool) -> ModelProto:
    if model.program is not None:
        subject, args, kwargs, shapes = model.program, (), None, None
    else:
        subject = model.module if plain else TensorOutputs(model.module)
        args, kwargs = _unmistakable(call), call.kwargs or None
        shapes = _dynamic_shapes(loaded.inputs, call) if plain else None
        if shapes is None and any(isinstance(dim, str) for spec in loaded.inputs for dim in spec.shape):
            raise ExporterFailed("outputs that are no tensors can't be exported with symbolic dimensions by dynamo")
    program = torch.onnx.export(
        subject,
        args,
        kwargs=kwargs,
        dynamo=True,
        opset_version=opset,
        dynamic_shapes=shapes,
        verbose=False,
    )
    if program is None:
        raise ExporterFailed("the exporter gave nothing")
    if _weight_bytes(model) < MAPPED_FROM:
        return program.model_proto
    program.save(str(folder / MODEL), external_data=True)
    return read_model(folder / MODEL)


def _weight_bytes(model: OpenModel) -> int:
    weights = model.program.state_dict if model.program is not None else model.module.state_dict()
    return sum(tensor.numel() * tensor.element_size() for tensor in weights.values() if tensor is not None)


def _dynamic_shapes(specs: Sequence[TensorSpec], call: Call) -> Any:
    """The tree of dynamic shapes that mirrors a call's arguments; None where nothing is symbolic."""
    if not any(isinstance(dim, str) for spec in specs for dim in spec.shape):
        return None
    remaining = iter(specs)

    def shape_of(_: torch.Tensor) -> dict[int, str] | None:
        spec = next(remaining)
        named = {axis: dim for axis, dim in enumerate(spec.shape) if isinstance(dim, str)}
        return dict.fromkeys(named, torch.export.Dim.DYNAMIC) or None

    args = tuple(map_leaves(arg, shape_of) for arg in call.args)
    kwargs = {name: map_leaves(arg, shape_of) for name, arg in call.kwargs.items()}
    return (*args, *kwargs.values()) if not kwargs else _by_parameter(call, args, kwargs)


def _by_parameter(call: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    names = call.parameter_names()
    return {**dict(zip(names, args, strict=False)), **kwargs}


def map_leaves(tree: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """The same tree with every tensor changed and everything else that is no container made None."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return {key: map_leaves(item, change) for key, item in tree.items()}
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_leaves(item, change) for item in tree)
    return None


def _refuse_whole_arguments(model: OpenModel, call: Call) -> None:
    """Refuse lists, dicts and numbers among the arguments of a script: its graph has each as one input."""
    types = {parameter.name: parameter.type for parameter in model.signature.parameters}
    given = {**dict(zip(call.parameters, call.args, strict=False)), **call.kwargs}
    whole = [name for name, value in given.items() if not isinstance(value, (torch.Tensor, tuple, type(None)))]
    if whole:
        shown = ", ".join(f"{name} ({types.get(name) or type(given[name]).__name__})" for name in whole)
        raise ExporterFailed(f"a script that takes {shown} has no ONNX form; script one that takes each tensor alone")


def _torchscript(
    model: OpenModel, loaded: LoadedModel, call: Call, opset: int, *, folder: Path, plain: bool
) -> ModelProto:
    if loaded.format == "torchscript":
        _refuse_whole_arguments(model, call)
    subject = model.module if plain else TensorOutputs(model.module)
    axes = {
        spec.name: {axis: dim for axis, dim in enumerate(spec.shape) if isinstance(dim, str)} for spec in loaded.inputs
    }
    if loaded.format == "torchscript" and (not plain or _leaves_defaults(model, call)):
        # A script inside a module can't be traced by the exporter itself, but a traced one can be exported.
        subject = _jit.trace(TensorOutputs(model.module), call.args, check_trace=False, strict=False)
    export = functools.partial(
        _export,
        subject,
        _unmistakable(call),
        kwargs=call.kwargs or None,
        dynamo=False,
        opset_version=opset,
        input_names=[spec.name for spec in loaded.inputs],
        dynamic_axes={name: named for name, named in axes.items() if named} or None,
        verbose=False,
    )
    with mended_symbolics():
        return _written(export, _weight_bytes(model), folder)


def _written(export: Callable[..., Any], size: int, folder: Path) -> ModelProto:
    """What an export gives, whose weights have ``size`` bytes: with the fewest copies of them."""
    if size >= MAPPED_FROM and able():
        with contextlib.suppress(LookupError):
            return export_apart(export, folder)
    memory = io.BytesIO() if size < EXTERNAL_FROM else None
    export(memory or str(folder / MODEL))
    if memory is None:
        return read_model(folder / MODEL)
    exported: ModelProto = ModelProto.FromString(memory.getvalue())
    return exported


def _leaves_defaults(model: OpenModel, call: Call) -> bool:
    """Whether a script has parameters that the call leaves to their defaults, which the exporter can't do."""
    return len(model.module.forward.schema.arguments) - 1 > len(call.args) + len(call.kwargs)


def _unmistakable(call: Call) -> tuple[Any, ...]:
    """Arguments whose last one is no dict, which exporters would read as keyword arguments: an empty one follows."""
    return (*call.args, {}) if call.args and isinstance(call.args[-1], dict) and not call.kwargs else call.args


def second_size(loaded: LoadedModel, calls: Sequence[Call]) -> list[Call]:
    """The first call at another size of every symbolic dimension that all samples have alike.

    Values are the sample's own, repeated (or cut) along the dimension, so that an index stays a valid index.
    Empty where there is no such dimension, or where its range has only one size.
    """
    sizes = _sizes_seen(loaded.inputs, calls)
    ranges = {entry.name: entry for entry in loaded.dims}
    wanted = {name: _other_size(next(iter(seen)), ranges.get(name)) for name, seen in sizes.items() if len(seen) == 1}
    wanted = {name: size for name, size in wanted.items() if size not in sizes[name]}
    if not wanted:
        return []
    remaining = iter(loaded.inputs)

    def resized(tensor: torch.Tensor) -> torch.Tensor:
        spec = next(remaining)
        for axis, dim in enumerate(spec.shape):
            if dim in wanted:
                tensor = _resize(tensor, axis, wanted[str(dim)])
        return tensor.clone()

    return [calls[0].mapped(resized)]


def probes(loaded: LoadedModel, call: Call, faults: Iterable[SilentFault] = ()) -> list[tuple[str, Call]]:
    """Calls that bring out the exporters' known silent faults, each with what it tries.

    A row of a mask that hides everything (attention turns it into a mean), an index that comes twice (an addition is
    lost), numbers below zero (an integer division rounds the other way); and where ``faults`` need it, masks that the
    model computes from its inputs, and values that turn a branch. The model may refuse them.
    """
    kinds = {spec.dtype for spec in loaded.inputs}
    named = {fault.name for fault in faults}
    integers, floats = bool(kinds & {"int32", "int64"}), bool(kinds & {"float16", "float32", "float64", "bfloat16"})
    wanted: list[tuple[bool, str, Callable[[torch.Tensor], torch.Tensor]]] = [
        ("bool" in kinds, "a row of a mask that is all False", _masked),
        (integers, "an index that comes twice", _repeated),
        (integers, "integers below zero", _negative),
        ("masked-rows" in named and floats, "a row of a mask that is all at its lowest", _lowest),
        ("masked-rows" in named, "a row of the inputs that is all zero", _emptied),
        ("frozen-branch" in named and floats, "the sample with its sign turned", _turned),
        ("frozen-branch" in named, "inputs that are all zero", torch.zeros_like),
    ]
    return [(what, call.mapped(change)) for applies, what, change in wanted if applies]


def _masked(tensor: torch.Tensor) -> torch.Tensor:
    changed = tensor.clone()
    if tensor.dtype == torch.bool and tensor.numel():
        changed[(0,) * max(tensor.dim() - 1, 0)] = False
    return changed


def _lowest(tensor: torch.Tensor) -> torch.Tensor:
    """A mask of floats (recognized by a number that hides) with its first row hidden; other floats as they are."""
    changed = tensor.clone()
    if tensor.is_floating_point() and tensor.numel() and float(tensor.min()) <= HIDES:
        changed[(0,) * max(tensor.dim() - 1, 0)] = tensor.min()
    return changed


def _emptied(tensor: torch.Tensor) -> torch.Tensor:
    """The first row along the leading dimension at zero, as padding is; a vector or a number as a whole."""
    changed = tensor.clone()
    if tensor.dtype != torch.bool and tensor.numel():
        changed[0 if tensor.dim() > 1 else ...] = 0
    return changed


def _repeated(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.dtype in (torch.int32, torch.int64) and tensor.numel():
        return tensor.flatten()[0].expand_as(tensor).clone()
    return tensor.clone()


def _negative(tensor: torch.Tensor) -> torch.Tensor:
    return -tensor.abs() - 1 if tensor.dtype in (torch.int32, torch.int64) else tensor.clone()


def _turned(tensor: torch.Tensor) -> torch.Tensor:
    return -tensor if tensor.is_floating_point() else tensor.clone()


def _sizes_seen(specs: Sequence[TensorSpec], calls: Sequence[Call]) -> dict[str, set[int]]:
    sizes: dict[str, set[int]] = {}
    for call in calls:
        for spec, leaf in zip(specs, call.leaves(), strict=True):
            for axis, dim in enumerate(spec.shape):
                if isinstance(dim, str):
                    sizes.setdefault(dim, set()).add(leaf.shape[axis])
    return sizes


def _other_size(seen: int, allowed: DimRange | None) -> int:
    """Another size that the range allows: one more, else one less; ``seen`` itself where there is none."""
    if allowed is None:
        return seen + 1
    if allowed.sizes:
        return next((size for size in allowed.sizes if size != seen), seen)
    if not allowed.high or seen < allowed.high:
        return seen + 1
    return seen - 1 if seen - 1 >= max(allowed.low, 1) else seen


def _resize(tensor: torch.Tensor, axis: int, size: int) -> torch.Tensor:
    if tensor.shape[axis] == 0:
        return tensor
    index = torch.from_numpy(np.arange(size) % tensor.shape[axis])
    return tensor.index_select(axis, index)


def tidy(folder: Path) -> None:
    """Drop the exporter's own files once the graph is written."""
    shutil.rmtree(folder, ignore_errors=True)


def one_line(error: BaseException) -> str:
    """What an exception says in one line; of an exporter's own wrappers, what they wrap."""
    cause = error
    while cause.__cause__ is not None and type(cause).__module__.startswith("torch.onnx"):
        cause = cause.__cause__
    return plain_line(cause)
