"""Python modules: unpickled where the user allows it, or made by a factory and filled with weights.

Runs in the worker only (imports torch).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from convert.errors import LoadError
from convert.loading.opened import OpenModel, half_note, module_signature, unused_factory, widen
from convert.loading.pickles import PickleScan, globals_of, scan_archive, scan_legacy, scan_tar
from convert.loading.scripts import stays_in_training
from convert.loading.sniff import shown_globals
from convert.loading.user_code import Guarded, import_callable, one_line, parse_arguments, search_also
from convert.loading.weights import load_weights, pick_entry
from convert.loading.zips import open_archive
from convert.values import LoadOptions, ModelFile, Note

FACTORY_HINT = (
    "give the function that builds the model: --factory package.module:callable or --factory path/file.py:callable "
    "(and --factory-arg key=value)"
)
PICKLE_HINT = (
    "pass --allow-pickle if you trust where the file comes from (unpickling runs code), or save it as TorchScript, "
    "torch.export or a state_dict"
)
MODE_MODULES = (
    torch.nn.modules.dropout._DropoutNd,
    torch.nn.RReLU,
    torch.nn.modules.batchnorm._BatchNorm,
)
"""Modules that give something else in training mode than in eval mode."""


def open_pickled(file: ModelFile, options: LoadOptions) -> OpenModel:
    """A pickled module, or a checkpoint or state_dict; what it holds decides.

    Raises :class:`LoadError`: CNV-3024 no model in it, CNV-3025 a checkpoint without one, CNV-3026 weights that do not
    fit, CNV-3027 the factory fails, CNV-3028 it can't be opened, CNV-3029 no forward, CNV-3031 quantized, CNV-3032 a
    part stays in training mode, CNV-3033 code that is not here, CNV-3034 weights without a factory, CNV-3036 a pickle
    that needs trust.
    """
    path = Path(file.path)
    scan = scan_file(file)
    if not options.allow_pickle:
        _check_trust(scan, file)
    if scan.kind == "state_dict" and not options.factory:
        raise _needs_factory(path, scan.entries, "a state_dict")
    held = _unpickle(path, options)
    if isinstance(held, torch.nn.Module):
        return _open_module(held, file, unused_factory(options, "a pickled module"))
    if not isinstance(held, Mapping):
        raise LoadError(
            "CNV-3024",
            f"{path.name} holds no model: it is a {type(held).__name__}",
            hint="save the model itself, with torch.jit.save or torch.export.save, or its state_dict() with torch.save",
        )
    found, key = pick_entry(held, path.name)
    notes = (Note(text=f"took the entry {key!r} of the checkpoint", subject=path.name),) if key else ()
    if isinstance(found, torch.nn.Module):
        return _open_module(found, file, notes + unused_factory(options, "a pickled module"))
    return _open_weights(found, file, options, notes)


def open_safetensors(file: ModelFile, options: LoadOptions) -> OpenModel:
    """Safetensors weights, loaded into what the factory makes (errors as :func:`open_pickled`, CNV-3022 if damaged)."""
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
        kind = "a safetensors file" if file.format == "safetensors" else "a checkpoint with a state_dict"
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
    return _open_module(module, file, notes, made=True)


def _needs_factory(path: Path, entries: tuple[tuple[str, str], ...], kind: str) -> LoadError:
    shown = ", ".join(f"{key} {what.removeprefix('tensor ')}" for key, what in entries[:5])
    shown += ", …" if len(entries) > 5 else ""
    return LoadError(
        "CNV-3034",
        f"{path.name} is {kind} of {len(entries)} tensors without the model's code: {shown}",
        hint=FACTORY_HINT,
    )


def scan_file(file: ModelFile) -> PickleScan:
    """The scan of a ``torch.save`` file of any age."""
    path = Path(file.path)
    if file.container == "zip":
        return scan_archive(open_archive(path, file.bytes))
    scan = scan_tar(path) if file.container == "tar" else scan_legacy(path, file.bytes)
    if scan is None:
        raise LoadError("CNV-3038", f"{path.name} has changed while it was being converted", hint="start again")
    return scan


def _check_trust(scan: PickleScan, file: ModelFile) -> None:
    """Refuse a pickle that needs code or imports beyond tensors and plain containers (CNV-3036)."""
    path = Path(file.path)
    if scan.unsafe:
        raise _untrusted(path, f"is a pickle that would import {shown_globals(scan.unsafe)}")
    if file.container == "tar":
        raise _untrusted(path, "is a tar of the first PyTorch versions, which opens only by running its pickles")


def _untrusted(path: Path, what: str) -> LoadError:
    return LoadError("CNV-3036", f"{path.name} {what}; nothing was run", hint=PICKLE_HINT)


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
    main = [name for name in globals_of(path) if name.startswith("__main__.")]
    hint = (
        "the class was defined in the script that saved it: move it into a module of its own and save again, or save "
        "a state_dict and give --factory"
        if main
        else f"install the package that has it, or make its folder known: PYTHONPATH=FOLDER, or run in that folder, "
        f"or put it beside {path.name}"
    )
    # What Python says of a missing member of ``__main__`` names this program's own main module.
    said = (
        f"it uses {shown_globals(tuple(main))}"
        if main
        else f"{one_line(error)}; it uses {shown_globals(tuple(needed))}"
    )
    return LoadError("CNV-3033", f"{path.name} needs code that is not here: {said}", hint=hint)


def _open_module(module: torch.nn.Module, file: ModelFile, notes: tuple[Note, ...], *, made: bool = False) -> OpenModel:
    """Eval mode, float32 and the checks that go with them; ``made``: by a factory, so its mode is nobody's wish."""
    path = Path(file.path)
    module, wrappers = _unwrapped(module)
    if wrappers:
        notes += (Note(text=f"taken out of its {' and '.join(wrappers)} wrapper", subject=path.name),)
    _check_forward(module, path)
    was_training = any(part.training for part in module.modules())
    with Guarded("CNV-3028", f"{path.name} can't be put into eval mode", hint="check the model's train() and eval()"):
        module.eval()
        module.requires_grad_(False)
    if was_training and not made:
        notes += (Note(text="it was saved in training mode (train); it was put into eval mode", subject=path.name),)
    stuck = [
        f"{name or 'the model'} ({type(part).__name__})"
        for name, part in module.named_modules()
        if part.training and isinstance(part, MODE_MODULES)
    ]
    if stuck:
        raise stays_in_training(path, stuck, "its train() or eval() keeps them there; let eval() reach every part")
    _check_not_quantized(module, path)
    was_half = widen(module)
    if was_half:
        notes += (half_note(file),)
    return OpenModel(module, None, "module", module_signature(module), notes, None, was_half)


def _check_forward(module: torch.nn.Module, path: Path) -> None:
    """Refuse a module whose class defines no ``forward`` (CNV-3029), listing the methods that it has."""
    if getattr(module.forward, "__func__", None) is not torch.nn.Module.forward:
        return
    own = sorted(
        {name for name in dir(type(module)) if callable(getattr(type(module), name, None))} - {*dir(torch.nn.Module)}
    )
    found = ", ".join(f"{name}()" for name in own if not name.startswith("_")) or "none"
    raise LoadError(
        "CNV-3029",
        f"{path.name} is a {type(module).__name__} without forward(); its methods: {found}",
        hint="wrap the method that you want in a module whose forward calls it, and save that",
    )


def _unwrapped(module: torch.nn.Module) -> tuple[torch.nn.Module, list[str]]:
    """The module inside DataParallel, DistributedDataParallel or ``torch.compile``, and what stood around it."""
    wrappers: list[str] = []
    while True:
        parallel = isinstance(module, (torch.nn.DataParallel, torch.nn.parallel.DistributedDataParallel))
        inner = module.module if parallel else getattr(module, "_orig_mod", None)
        if not isinstance(inner, torch.nn.Module):
            return module, wrappers
        wrappers.append(type(module).__name__)
        module = inner


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
