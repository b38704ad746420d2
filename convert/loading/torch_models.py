"""Opening a torch model of any format, ready to run: in eval mode, on the CPU, with what was done to it reported.

Runs in the worker only (imports torch). A model is opened once per process: the export stage, which runs right
after ``load`` in the same worker, gets the same object.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from convert.errors import LoadError
from convert.loading.calls import Call, Parameter, Signature, to_array, to_tensor
from convert.loading.pickles import PickleScan, globals_of, scan_archive, scan_legacy, scan_tar
from convert.loading.programs import open_program
from convert.loading.scripts import DROPOUTS, RANDOM, open_script, script_signature, stays_in_training
from convert.loading.sniff import identify, shown_globals
from convert.loading.user_code import Guarded, import_callable, one_line, parse_arguments, search_also
from convert.loading.weights import load_weights, pick_entry
from convert.loading.zips import open_archive
from convert.values import LoadedModel, LoadOptions, ModelFile, ModelFormat, Note

__all__ = ["Call", "OpenModel", "check_repeats", "open_file", "open_model", "sample_calls", "to_array", "to_tensor"]

FACTORY_HINT = (
    "give the function that builds the model: --factory package.module:callable or --factory path/file.py:callable "
    "(and --factory-arg key=value)"
)
PICKLE_HINT = (
    "pass --allow-pickle if you trust where the file comes from (unpickling runs code), or save it as TorchScript, "
    "torch.export or a state_dict"
)
RANDOM_MODULES = (torch.nn.modules.dropout._DropoutNd, torch.nn.RReLU)
STATEFUL_MODULES = (torch.nn.modules.batchnorm._BatchNorm,)
HALF = (torch.float16, torch.bfloat16)


@dataclasses.dataclass(frozen=True)
class OpenModel:
    """A model that can be called. ``program``: the exported program that ``module`` was made from, if it was one.

    ``may_vary``: what in it may make two runs differ (random operators, attributes set by ``forward``); None where
    only running tells. ``was_half``: its weights were widened to float32, and inputs are to be widened too.
    """

    module: Any
    program: Any | None
    kind: ModelFormat
    signature: Signature
    notes: tuple[Note, ...] = ()
    may_vary: tuple[str, ...] | None = None
    was_half: bool = False

    def run(self, call: Call) -> Any:
        """The model's own answer to a call, whatever it raises included."""
        return self.module(*call.args, **call.kwargs)


_opened: dict[tuple[object, ...], OpenModel] = {}


def open_model(loaded: LoadedModel, options: LoadOptions) -> OpenModel:
    """Open the model that ``load`` described, again or for the first time in this process.

    Raises :class:`LoadError` as :func:`open_file` does, and CNV-3038 where the file has changed since.
    """
    known = _opened.get(_key(loaded.parent, options))
    if known is not None:
        return known
    file = identify(Path(options.path))
    if file.sha256 != loaded.parent:
        raise LoadError(
            "CNV-3038", f"{Path(options.path).name} has changed while it was being converted", hint="start again"
        )
    return open_file(file, options)


def open_file(file: ModelFile, options: LoadOptions) -> OpenModel:
    """Open a torch model in eval mode; the last one opened in this process is kept.

    Raises :class:`LoadError`: CNV-3024 to CNV-3037, see the openers of each format, and :class:`UsageError` for a
    factory that can't be found or fails (CNV-2018 to CNV-2020).
    """
    key = _key(file.sha256, options)
    if key not in _opened:
        _opened.clear()
        _opened[key] = OPENERS[file.format](file, options)
    return _opened[key]


def _key(sha256: str, options: LoadOptions) -> tuple[object, ...]:
    return (sha256, options.path, options.factory, options.factory_args, options.allow_pickle)


# ------------------------------------------------------------------------------------------------------ the formats


def _open_script(file: ModelFile, options: LoadOptions) -> OpenModel:
    module, notes, may_vary = open_script(file)
    notes += _unused_factory(options, "a TorchScript archive")
    was_half = _widen(module)
    if was_half:
        notes += (_half_note(file),)
    return OpenModel(module, None, "torchscript", script_signature(module), notes, may_vary, was_half)


def _open_exported(file: ModelFile, options: LoadOptions) -> OpenModel:
    program = open_program(file, allow_pickle=options.allow_pickle)
    path = Path(file.path)
    _check_program_mode(program, path)
    with Guarded("CNV-3028", f"{path.name} can't be made runnable", hint="export the model again"):
        module = program.module()
    notes = _unused_factory(options, "an exported program")
    may_vary = tuple(sorted(name for name in _program_operators(program) if name in RANDOM))
    return OpenModel(module, program, "exported_program", _program_signature(program), notes, may_vary)


def _program_operators(program: Any) -> set[str]:
    names = (str(node.target) for node in program.graph.nodes if node.op == "call_function")
    return {name.split(".")[1] if name.startswith("aten.") else name for name in names}


def _check_program_mode(program: Any, path: Path) -> None:
    found: list[str] = []
    for node in program.graph.nodes:
        name = str(node.target).removeprefix("aten.").partition(".")[0]
        training = {"batch_norm": 5, "native_batch_norm": 5, "_native_batch_norm_legit": 5}.get(name)
        drops = name in DROPOUTS and len(node.args) > 2 and node.args[2] is True and node.args[1] != 0
        learns = training is not None and len(node.args) > training and node.args[training] is True and node.args[3]
        if drops or learns:
            found.append(_module_of(node) or name)
    if found:
        raise stays_in_training(path, found, "export the model again after model.eval()")


def _module_of(node: Any) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    entries = list(stack.values())
    return f"{entries[-1][0]} ({str(entries[-1][1]).rpartition('.')[2]})" if entries else ""


def _program_signature(program: Any) -> Signature:
    signature = program.module_call_graph[0].signature
    names = list(getattr(signature, "forward_arg_names", None) or ())
    args_spec, kwargs_spec = program.call_spec.in_spec.children()
    keywords = list(kwargs_spec.context or ())
    positional = names[: args_spec.num_children] or [f"arg{index}" for index in range(args_spec.num_children)]
    parameters = [Parameter(name) for name in positional] + [Parameter(name, keyword=True) for name in keywords]
    return Signature(tuple(parameters))


def _open_pickled(file: ModelFile, options: LoadOptions) -> OpenModel:
    """A pickled module, or a checkpoint or state_dict; what it holds decides."""
    path = Path(file.path)
    scan = scan_file(file)
    _check_trust(scan, path, options)
    if scan.kind == "state_dict" and not options.factory:
        raise _needs_factory(path, scan.entries, "a state_dict")
    held = _unpickle(path, options)
    if isinstance(held, torch.nn.Module):
        return _open_module(held, file, _unused_factory(options, "a pickled module"))
    if not isinstance(held, Mapping):
        raise LoadError(
            "CNV-3024",
            f"{path.name} holds no model: it is a {type(held).__name__}",
            hint="save the model itself, with torch.save(model.state_dict(), PATH), torch.jit.save or torch.export.save",
        )
    found, key = pick_entry(held, path.name)
    notes = (Note(text=f"took the entry {key!r} of the checkpoint", subject=path.name),) if key else ()
    if isinstance(found, torch.nn.Module):
        return _open_module(found, file, notes + _unused_factory(options, "a pickled module"))
    return _open_weights(found, file, options, notes)


def _open_safetensors(file: ModelFile, options: LoadOptions) -> OpenModel:
    from safetensors.torch import load_file

    path = Path(file.path)
    hint = "download or copy the file again and compare its sha256 with the source"
    with Guarded("CNV-3022", f"{path.name} can't be read", hint=hint):
        weights = load_file(str(path))
    return _open_weights(weights, file, options, ())


def _open_weights(
    weights: Mapping[str, Any], file: ModelFile, options: LoadOptions, notes: tuple[Note, ...]
) -> OpenModel:
    path = Path(file.path)
    if not options.factory:
        entries = tuple(
            (key, f"tensor {list(value.shape)}") for key, value in weights.items() if hasattr(value, "shape")
        )
        kind = "safetensors weights" if file.format == "safetensors" else "a checkpoint of weights"
        raise _needs_factory(path, entries, kind)
    make = import_callable(options.factory, "--factory", beside=path.parent)
    arguments = parse_arguments(options.factory_args)
    hint = "call the factory in Python with the same arguments to see why"
    with Guarded("CNV-3027", f"the factory {options.factory} failed", hint=hint):
        module = make(**arguments)
    if not isinstance(module, torch.nn.Module):
        raise LoadError(
            "CNV-3027",
            f"the factory {options.factory} gave a {type(module).__name__}, not a torch.nn.Module",
            hint="let the factory return the model, without weights or with any",
        )
    notes += load_weights(module, weights, path.name, options.factory)
    return _open_module(module, file, notes)


OPENERS: dict[str, Callable[[ModelFile, LoadOptions], OpenModel]] = {
    "torchscript": _open_script,
    "exported_program": _open_exported,
    "module": _open_pickled,
    "checkpoint": _open_pickled,
    "state_dict": _open_pickled,
    "safetensors": _open_safetensors,
}


def _needs_factory(path: Path, entries: tuple[tuple[str, str], ...], kind: str) -> LoadError:
    shown = ", ".join(f"{key} {what.removeprefix('tensor ')}" for key, what in entries[:5])
    shown += ", …" if len(entries) > 5 else ""
    return LoadError(
        "CNV-3034",
        f"{path.name} is {kind} of {len(entries)} tensors without the model's code: {shown}",
        hint=FACTORY_HINT,
    )


def _unused_factory(options: LoadOptions, what: str) -> tuple[Note, ...]:
    if not options.factory:
        return ()
    return (Note(level="warning", text=f"the factory was not used: the file is {what} and holds its own code"),)


# ----------------------------------------------------------------------------------------------------------- pickles


def scan_file(file: ModelFile) -> PickleScan:
    """The scan of a ``torch.save`` file of any age."""
    path = Path(file.path)
    if file.container == "zip":
        return scan_archive(open_archive(path, file.bytes))
    scan = scan_tar(path) if file.container == "tar" else scan_legacy(path, file.bytes)
    if scan is None:
        raise LoadError("CNV-3038", f"{path.name} has changed while it was being converted", hint="start again")
    return scan


def _check_trust(scan: PickleScan, path: Path, options: LoadOptions) -> None:
    """Refuse what needs code from the file or its imports, unless the user allows it (CNV-3036)."""
    if options.allow_pickle:
        return
    if scan.unsafe:
        raise _untrusted(path, scan.unsafe)
    with path.open("rb") as stream:
        if stream.read(512)[257:262] == b"ustar":
            raise _untrusted(path, scan.globals)


def _untrusted(path: Path, names: tuple[str, ...]) -> LoadError:
    return LoadError(
        "CNV-3036",
        f"{path.name} is a pickle that would import {shown_globals(names)}; nothing was run",
        hint=PICKLE_HINT,
    )


def _unpickle(path: Path, options: LoadOptions) -> Any:
    """Unpickle a file: tensors and containers only, or anything where the user allows it."""
    if not options.allow_pickle:
        with Guarded("CNV-3036", f"{path.name} can't be unpickled safely", hint=PICKLE_HINT):
            return torch.load(str(path), map_location="cpu", weights_only=True)
    search_also(path.parent)
    search_also(Path.cwd())
    hint = "save it again with torch.save where it can be opened, or give a state_dict and a factory"
    with Guarded("CNV-3028", f"PyTorch {torch.__version__} can't open {path.name}", hint=hint):
        try:
            return torch.load(str(path), map_location="cpu", weights_only=False)
        except (ImportError, AttributeError) as error:
            raise _missing_code(path, error) from error
    raise AssertionError("unreachable")


def _missing_code(path: Path, error: ImportError | AttributeError) -> LoadError:
    """The error for a class of a pickle that is not in this environment, naming all modules that the file needs."""
    needed = [name for name in globals_of(path) if not name.startswith(("torch.", "collections.", "builtins.", "_"))]
    main = any(name.startswith("__main__.") for name in globals_of(path))
    hint = (
        "the class was defined in the script that saved it: move it into a module of its own and save again, or save "
        "a state_dict and give --factory"
        if main
        else f"install the package that has it, or make its folder known: PYTHONPATH=FOLDER, or run in that folder, "
        f"or put it beside {path.name}"
    )
    return LoadError(
        "CNV-3033",
        f"{path.name} needs code that is not here: {one_line(error)}; it uses {shown_globals(tuple(needed))}",
        hint=hint,
    )


# ----------------------------------------------------------------------------------------------------------- modules


def _open_module(module: torch.nn.Module, file: ModelFile, notes: tuple[Note, ...]) -> OpenModel:
    path = Path(file.path)
    was_training = any(part.training for part in module.modules())
    with Guarded("CNV-3028", f"{path.name} can't be put into eval mode", hint="check the model's train() and eval()"):
        module.eval()
        module.requires_grad_(False)
    if was_training and not isinstance(module, FromFactory):
        notes += (Note(text="it was saved in training mode (train); it was put into eval mode", subject=path.name),)
    stuck = [
        f"{name or 'the model'} ({type(part).__name__})"
        for name, part in module.named_modules()
        if part.training and isinstance(part, (*RANDOM_MODULES, *STATEFUL_MODULES))
    ]
    if stuck:
        raise stays_in_training(path, stuck, "its train() or eval() keeps them there; let eval() reach every part")
    _check_not_quantized(module, path)
    was_half = _widen(module)
    if was_half:
        notes += (_half_note(file),)
    kind: ModelFormat = "module"
    return OpenModel(module, None, kind, module_signature(module), notes, None, was_half)


def _check_not_quantized(module: torch.nn.Module, path: Path) -> None:
    found = [
        f"{name} ({type(part).__name__})"
        for name, part in module.named_modules()
        if ".quantized." in type(part).__module__ and type(part).__module__.startswith("torch.")
    ]
    if found:
        raise LoadError(
            "CNV-3031",
            f"{path.name} is quantized by PyTorch ({', '.join(found[:6])}), which no exporter can turn into ONNX",
            hint="give the float model that it was made from and quantize while converting: --precision int8",
        )


def _widen(module: Any) -> bool:
    """Widen float16 and bfloat16 weights to float32; whether there were any."""
    tensors = [*module.parameters(), *module.buffers()]
    if not any(tensor.dtype in HALF for tensor in tensors):
        return False
    module.float()
    return True


def _half_note(file: ModelFile) -> Note:
    return Note(
        text="half-precision weights (float16 or bfloat16) were widened to float32", subject=Path(file.path).name
    )


def module_signature(module: torch.nn.Module) -> Signature:
    """What ``forward`` of a module takes."""
    try:
        found = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return Signature((), more=True, any_keyword=True)
    parameters = tuple(
        Parameter(
            item.name,
            item.default is inspect.Parameter.empty,
            item.kind is inspect.Parameter.KEYWORD_ONLY,
            _type_text(item.annotation),
        )
        for item in found
        if item.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    )
    kinds = {item.kind for item in found}
    return Signature(
        parameters, more=inspect.Parameter.VAR_POSITIONAL in kinds, any_keyword=inspect.Parameter.VAR_KEYWORD in kinds
    )


def _type_text(annotation: object) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation.__name__ if isinstance(annotation, type) and "[" not in str(annotation) else str(annotation)


# ------------------------------------------------------------------------------------------------------------ running


def check_repeats(model: OpenModel, call: Call, file_name: str) -> None:
    """Run a model twice on one sample where nothing proves that it is not random.

    Raises :class:`LoadError` CNV-3039 where the model fails on the sample, CNV-3040 where the two answers differ:
    the message names what drew random numbers.
    """
    if model.may_vary == ():
        return
    hint = "check the sample inputs (--samples, --input) against what forward() takes"
    with Guarded("CNV-3039", f"{file_name} fails on the first sample input", hint=hint), torch.no_grad():
        with _Watch(model) as watch:
            first = model.run(call)
        second = model.run(call)
    if _same(first, second):
        return
    drew = ", ".join(model.may_vary or watch.found) or "it keeps state between calls"
    raise LoadError(
        "CNV-3040",
        f"{file_name} gives another answer when it is run again on the same inputs: {drew}",
        hint="make forward() deterministic: no dropout with training=True, no random numbers, no state between calls",
    )


class _Watch(torch.overrides.TorchFunctionMode):
    """Notes which functions that draw random numbers a module calls, and in which part of it."""

    def __init__(self, model: OpenModel) -> None:
        super().__init__()
        self.found: dict[str, None] = {}
        self._stack: list[str] = []
        self._hooks: list[Any] = []
        self._model = model

    def __enter__(self) -> _Watch:
        if self._model.kind == "module":
            for name, part in self._model.module.named_modules():
                label = name or "forward()"
                self._hooks.append(part.register_forward_pre_hook(lambda *_, label=label: self._stack.append(label)))
                self._hooks.append(part.register_forward_hook(lambda *_: self._stack and self._stack.pop() and None))
        super().__enter__()
        return self

    def __exit__(self, *details: Any) -> None:
        super().__exit__(*details)
        for hook in self._hooks:
            hook.remove()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        drops = name in DROPOUTS and bool((kwargs or {}).get("training", len(args) > 2 and args[2] is True))
        if drops or name in RANDOM:
            self.found[f"{name} in {self._stack[-1] if self._stack else 'forward()'}"] = None
        return func(*args, **(kwargs or {}))


def _same(first: Any, second: Any) -> bool:
    if isinstance(first, torch.Tensor):
        alike = isinstance(second, torch.Tensor) and first.shape == second.shape and first.dtype == second.dtype
        if not alike:
            return False
        plain = first.is_floating_point() or first.is_complex()
        return (
            torch.allclose(first, second, rtol=1e-4, atol=1e-5, equal_nan=True) if plain else torch.equal(first, second)
        )
    if isinstance(first, Mapping):
        return first.keys() == second.keys() and all(_same(first[key], second[key]) for key in first)
    if isinstance(first, (tuple, list)):
        return len(first) == len(second) and all(_same(a, b) for a, b in zip(first, second, strict=True))
    if dataclasses.is_dataclass(first) and not isinstance(first, type):
        return all(_same(getattr(first, f.name), getattr(second, f.name)) for f in dataclasses.fields(first))
    return True


def sample_calls(loaded: LoadedModel) -> list[Call]:
    """The calls that ``load`` kept, in order."""
    parameters = tuple(spec for spec in _parameters(loaded))
    calls = []
    for index in range(loaded.sample_count):
        args, kwargs = torch.load(loaded.path(f"samples/{index:03d}.pt"), weights_only=True)
        calls.append(Call(tuple(args), dict(kwargs), parameters))
    return calls


def _parameters(loaded: LoadedModel) -> list[str]:
    import msgspec

    return msgspec.json.decode(loaded.path("samples/parameters.json").read_bytes(), type=list[str])
