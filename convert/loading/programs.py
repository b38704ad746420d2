"""``torch.export`` programs (.pt2), opened after :mod:`convert.loading.program_vetting` has passed them.

Runs in the worker only (imports torch).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from convert.loading.calls import Parameter, Signature
from convert.loading.opened import OpenModel, unused_factory
from convert.loading.program_vetting import vet_program
from convert.loading.scripts import DROPOUTS, RANDOM, stays_in_training
from convert.loading.user_code import Guarded
from convert.values import LoadOptions, ModelFile


def open_exported(file: ModelFile, options: LoadOptions) -> OpenModel:
    """Open an exported program.

    Raises :class:`LoadError`: CNV-3028 it can't be opened, CNV-3032 captured in training mode, CNV-3036 and CNV-3037 it
    did not pass the vetting.
    """
    program = open_program(file, allow_pickle=options.allow_pickle)
    path = Path(file.path)
    _check_program_mode(program, path)
    with Guarded("CNV-3028", f"{path.name} can't be made runnable", hint="export the model again"):
        module = program.module()
    notes = unused_factory(options, "an exported program")
    may_vary = tuple(sorted(name for name in _program_operators(program) if name in RANDOM))
    return OpenModel(module, program, "exported_program", _program_signature(program), notes, may_vary)


@contextmanager
def weights_only() -> Iterator[None]:
    """Make every ``torch.load`` in this process weights-only, also those that ask for less."""
    name = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"
    before = os.environ.get(name)
    os.environ[name] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def open_program(file: ModelFile, *, allow_pickle: bool) -> Any:
    """Open an exported program after vetting it. Raises what :func:`vet_program` does, and CNV-3028."""
    vet_program(file, allow_pickle=allow_pickle)
    path = Path(file.path)
    hint = "open it with the PyTorch version that saved it and save it again, or export the model again"
    logging.getLogger("torch.export").setLevel(logging.ERROR)
    with Guarded("CNV-3028", f"PyTorch {torch.__version__} can't open {path.name}", hint=hint):
        if allow_pickle:
            return torch.export.load(str(path))
        with weights_only():
            return torch.export.load(str(path))
    raise AssertionError("unreachable")


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
