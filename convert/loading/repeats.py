"""Whether a model gives the same answer twice; what drew random numbers where it does not. Worker only."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch

from convert.errors import LoadError
from convert.loading.calls import Call
from convert.loading.opened import OpenModel
from convert.loading.scripts import DROPOUTS, RANDOM
from convert.loading.user_code import Guarded

IN_ONNX = {
    "randn": "RandomNormal",
    "randn_like": "RandomNormalLike",
    "rand": "RandomUniform",
    "rand_like": "RandomUniformLike",
    "bernoulli": "Bernoulli",
    "multinomial": "Multinomial",
    "dropout": "Dropout",
}
_Mode: Any = torch.overrides.TorchFunctionMode


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
            first = model.run(call.mapped(torch.Tensor.clone))  # a model may change its inputs in place
        second = model.run(call.mapped(torch.Tensor.clone))
    if _same(first, second):
        return
    drew = ", ".join(map(_in_onnx, model.may_vary or watch.found)) or "it keeps state between calls"
    raise LoadError(
        "CNV-3040",
        f"{file_name} gives another answer when it is run again on the same inputs: {drew}",
        hint="make forward() deterministic: no dropout with training=True, no random numbers, no state between calls",
    )


def _in_onnx(kind: str) -> str:
    """What draws random numbers, with the ONNX operator that it would become."""
    name = IN_ONNX.get(kind.removeprefix("aten::"))
    return f"{kind} ({name})" if name else kind


class _Watch(_Mode):  # type: ignore[misc]
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
