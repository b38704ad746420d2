"""Calls of a model: positional and keyword arguments, nested as ``forward`` takes them, with a name for each tensor.

A tensor is named by its path: ``x``, ``feats.1.0``, ``state.h``. The first part is the parameter of ``forward``.
Runs in the worker only (imports torch).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch

from convert.arrays import Array
from convert.errors import UsageError

RAW = {
    torch.bfloat16: (torch.int16, "bfloat16"),
    torch.float8_e4m3fn: (torch.uint8, "float8_e4m3fn"),
    torch.float8_e5m2: (torch.uint8, "float8_e5m2"),
}
"""Dtypes that numpy has only by extension: how their bits are passed on, and the extension's name."""
CONSTANTS = (int, float, bool, str, complex, type(None), torch.dtype, torch.device)


@dataclasses.dataclass(frozen=True)
class Call:
    """One call of a model. ``parameters``: names of the positional parameters of ``forward``, in order."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    parameters: tuple[str, ...] = ()

    def named(self) -> list[tuple[str, torch.Tensor]]:
        """Tensors in call order (positional arguments first) with their paths."""
        found: list[tuple[str, torch.Tensor]] = []
        names = [*self.parameters[: len(self.args)], *(f"arg{i}" for i in range(len(self.parameters), len(self.args)))]
        for name, arg in (*zip(names, self.args, strict=True), *self.kwargs.items()):
            _collect(arg, name, found)
        return found

    def tensors(self) -> list[torch.Tensor]:
        """Tensors in call order."""
        return [tensor for _, tensor in self.named()]

    def leaves(self) -> list[Array]:
        """Tensors in call order as arrays."""
        return [to_array(tensor) for tensor in self.tensors()]

    def mapped(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Call:
        """The same call with every tensor changed, in call order."""
        args = tuple(map_tensors(arg, change) for arg in self.args)
        kwargs = {name: map_tensors(arg, change) for name, arg in self.kwargs.items()}
        return Call(args, kwargs, self.parameters)

    def parameter_names(self) -> tuple[str, ...]:
        """Names of the positional parameters of ``forward``."""
        return self.parameters


def _collect(tree: Any, name: str, found: list[tuple[str, torch.Tensor]]) -> None:
    if isinstance(tree, torch.Tensor):
        found.append((name, tree))
    elif isinstance(tree, Mapping):
        for key, item in tree.items():
            _collect(item, f"{name}.{key}", found)
    elif isinstance(tree, (tuple, list)):
        for index, item in enumerate(tree):
            _collect(item, f"{name}.{index}", found)
    elif not isinstance(tree, CONSTANTS):
        raise UsageError(
            "CNV-2017",
            f"sample input {name} is a {type(tree).__name__}, which is neither a tensor nor a container of tensors",
            hint="samples may hold tensors, numbers, None, and dicts, lists and tuples of them",
        )


def map_tensors(tree: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same tree with every tensor changed; containers keep their types, other values stay."""
    if isinstance(tree, torch.Tensor):
        return change(tree)
    if isinstance(tree, Mapping):
        return {key: map_tensors(item, change) for key, item in tree.items()}
    if isinstance(tree, tuple) and hasattr(tree, "_fields"):
        return type(tree)(*(map_tensors(item, change) for item in tree))
    if isinstance(tree, (tuple, list)):
        return type(tree)(map_tensors(item, change) for item in tree)
    return tree


def to_array(tensor: torch.Tensor) -> Array:
    """A tensor as a numpy array of the same dtype (bfloat16 and float8 by ``ml_dtypes``)."""
    plain = tensor.detach().cpu().resolve_conj().resolve_neg()
    if plain.dtype not in RAW:
        return cast(Array, plain.numpy())
    import ml_dtypes

    bits, name = RAW[plain.dtype]
    return cast(Array, plain.contiguous().view(bits).numpy().view(getattr(ml_dtypes, name)))


def to_tensor(array: Array) -> torch.Tensor:
    """A numpy array as a tensor of the same dtype."""
    plain = np.ascontiguousarray(array).reshape(array.shape)
    name = plain.dtype.name
    for dtype, (bits, raw) in RAW.items():
        if name == raw:
            return torch.from_numpy(plain.view(str(bits).removeprefix("torch."))).view(dtype)
    return torch.from_numpy(plain.copy())


def dtype_name(tensor: torch.Tensor) -> str:
    """``float32``, ``bfloat16``, …"""
    return str(tensor.dtype).removeprefix("torch.")


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A parameter of ``forward``. ``kind``: ``positional``, ``keyword`` (only by name)."""

    name: str
    required: bool = True
    keyword: bool = False
    type: str = ""


@dataclasses.dataclass(frozen=True)
class Signature:
    """What ``forward`` takes. ``more``: it has ``*args``; ``any_keyword``: it has ``**kwargs``."""

    parameters: tuple[Parameter, ...]
    more: bool = False
    any_keyword: bool = False

    @property
    def positional(self) -> tuple[str, ...]:
        """Names of the parameters that may be given by position."""
        return tuple(parameter.name for parameter in self.parameters if not parameter.keyword)

    def described(self) -> str:
        """The parameters with what is known of their types: ``ids (int64, an index into a table), mask (Tensor)``."""
        names = [f"{item.name} ({item.type})" if item.type else item.name for item in self.parameters]
        return ", ".join(names) or "forward() takes no named parameters"

    def shown(self) -> str:
        """The parameters for a message: ``x, mask=…``."""
        names = [parameter.name if parameter.required else f"{parameter.name}=…" for parameter in self.parameters]
        return ", ".join(names + ["*args"] * self.more + ["**kwargs"] * self.any_keyword)


def bind(values: Mapping[str, torch.Tensor], signature: Signature) -> tuple[Call, dict[str, str]]:
    """A call from tensors by name, and the names that were bound by position (path → name given).

    A name is a parameter of ``forward`` or a path below one (``feats.1.0``). Where no name is known and none is
    nested, tensors are taken in order. Raises :class:`UsageError` CNV-2017 where they do not fit.
    """
    known = {parameter.name: parameter for parameter in signature.parameters}
    heads = {name: _head(name, known, signature) for name in values}
    if values and (not any(heads.values()) or (signature.more and not signature.parameters)):
        return _bind_in_order(values, signature)
    unknown = [name for name, head in heads.items() if not head]
    missing = [name for name, parameter in known.items() if parameter.required and name not in heads.values()]
    if unknown or missing:
        raise does_not_fit(list(values), signature, unknown=unknown, missing=missing)
    given: dict[str, Any] = {}
    for name, tensor in values.items():
        _place(
            given, [heads[name], *name[len(heads[name]) + 1 :].split(".")] if name != heads[name] else [name], tensor
        )
    trees = {name: _as_sequences(tree, known[name].type if name in known else "") for name, tree in given.items()}
    return _arrange(trees, signature), {}


def does_not_fit(
    names: Sequence[str], signature: Signature, *, unknown: Sequence[str] = (), missing: Sequence[str] = ()
) -> UsageError:
    """The error for inputs that ``forward`` does not take or that it lacks."""
    faults = [f"there is no parameter {_some(unknown)}"] if unknown else []
    faults += [f"{_some(missing)} {'is' if len(missing) == 1 else 'are'} missing"] if missing else []
    return UsageError(
        "CNV-2017",
        f"the inputs ({', '.join(names)}) do not fit the model's forward({signature.shown()}): {'; '.join(faults)}",
        hint="name the inputs as forward does, a nested one by its path (feats.1.0), or give all of them in order",
    )


def _head(name: str, known: Mapping[str, Parameter], signature: Signature) -> str:
    if name in known:
        return name
    head = name.partition(".")[0]
    if head in known and head != name:
        return head
    return name.partition(".")[0] if signature.any_keyword and name.partition(".")[0].isidentifier() else ""


def _bind_in_order(values: Mapping[str, torch.Tensor], signature: Signature) -> tuple[Call, dict[str, str]]:
    names = signature.positional
    required = sum(parameter.required and not parameter.keyword for parameter in signature.parameters)
    if len(values) < required or (len(values) > len(names) and not signature.more):
        raise does_not_fit(list(values), signature, unknown=list(values))
    call = Call(tuple(values.values()), {}, names)
    return call, dict(zip((path for path, _ in call.named()), values, strict=True))


def _place(tree: dict[str, Any], path: list[str], tensor: torch.Tensor) -> None:
    for part in path[:-1]:
        inner = tree.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError("CNV-2017", f"input {'.'.join(path)} lies inside another input", hint="name leaves only")
        tree = inner
    tree[path[-1]] = tensor


def _as_sequences(tree: Any, type_text: str) -> Any:
    """Turn dicts with the keys 0, 1, … into lists (tuples where the parameter's type says so)."""
    if not isinstance(tree, dict):
        return tree
    inner = type_text.partition("[")[2]
    items = {key: _as_sequences(item, inner) for key, item in tree.items()}
    if sorted(items) == sorted(str(index) for index in range(len(items))):
        sequence = [items[str(index)] for index in range(len(items))]
        return tuple(sequence) if "tuple" in type_text.partition("[")[0].lower() else sequence
    return items


def _arrange(trees: dict[str, Any], signature: Signature) -> Call:
    """Positional arguments as far as they have no gap, keyword arguments from there on."""
    args: list[Any] = []
    for name in signature.positional:
        if name not in trees:
            break
        args.append(trees.pop(name))
    ordered = [parameter.name for parameter in signature.parameters if parameter.name in trees]
    kwargs = {name: trees[name] for name in (*ordered, *(name for name in trees if name not in ordered))}
    return Call(tuple(args), kwargs, signature.positional)


def _some(names: Sequence[str], most: int = 8) -> str:
    """A few names of a list that may have hundreds."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
