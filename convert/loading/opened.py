"""An opened torch model: what can be called, what it takes, and what was done to it. Runs in the worker only."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from typing import Any

import torch

from convert.loading.calls import Call, Parameter, Signature
from convert.values import LoadOptions, ModelFile, ModelFormat, Note

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


def widen(module: Any) -> bool:
    """Widen float16 and bfloat16 weights to float32; whether there were any."""
    tensors = [*module.parameters(), *module.buffers()]
    if not any(tensor.dtype in HALF for tensor in tensors):
        return False
    module.float()
    return True


def half_note(file: ModelFile) -> Note:
    """The note for widened weights."""
    return Note(
        text="half-precision weights (float16 or bfloat16) were widened to float32", subject=Path(file.path).name
    )


def unused_factory(options: LoadOptions, what: str) -> tuple[Note, ...]:
    """A note where a factory was given for a file that holds its own code."""
    if not options.factory:
        return ()
    return (Note(level="warning", text=f"the factory was not used: the file is {what} and holds its own code"),)


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
