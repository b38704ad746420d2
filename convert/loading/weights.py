"""Weights into a module: picking the entry of a checkpoint, stripping prefixes, and loading them strictly.

Runs in the worker only (imports torch).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from convert.errors import LoadError
from convert.values import Note

ENTRIES = (
    "ema", "model_ema", "state_dict_ema", "ema_state_dict", "model", "state_dict", "model_state_dict", "model_state",
    "net", "network", "module", "weights", "params",
)  # fmt: skip
"""Where training scripts keep the model in a checkpoint, the averaged weights first, as they are what is deployed."""
PREFIXES = ("module.", "_orig_mod.", "model.")
"""What DataParallel, ``torch.compile`` and wrapper classes put before every key."""
SHOWN = 40


def is_state_dict(value: object) -> bool:
    """Whether a value is a non-empty mapping from names to tensors."""
    return (
        isinstance(value, Mapping)
        and bool(value)
        and all(isinstance(key, str) for key in value)
        and all(isinstance(item, torch.Tensor) or key.endswith("_extra_state") for key, item in value.items())
    )


def pick_entry(checkpoint: object, file_name: str, depth: int = 2) -> tuple[Any, str]:
    """The module or state_dict in a checkpoint, and the path of keys that leads to it (empty: the whole).

    Raises :class:`LoadError` CNV-3025 where there is neither; the message lists what is there.
    """
    found = _pick(checkpoint, depth)
    if found is not None:
        return found
    keys = list(checkpoint) if isinstance(checkpoint, Mapping) else []
    shown = (
        ", ".join(f"{key} ({_kind(checkpoint[key])})" for key in keys[:12]) if isinstance(checkpoint, Mapping) else ""
    )
    raise LoadError(
        "CNV-3025",
        f"{file_name} is a checkpoint without a model: none of its entries is a module or a state_dict; "
        f"it holds {shown or type(checkpoint).__name__}",
        hint=f"keep the weights under one of these keys: {', '.join(ENTRIES[4:8])}, or save model.state_dict() alone",
    )


def _pick(value: object, depth: int) -> tuple[Any, str] | None:
    if isinstance(value, torch.nn.Module) or is_state_dict(value):
        return value, ""
    if depth == 0 or not isinstance(value, Mapping):
        return None
    for key in ENTRIES:
        found = _pick(value.get(key), depth - 1)
        if found is not None:
            return found[0], f"{key}.{found[1]}".rstrip(".")
    return None


def _kind(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor {list(value.shape)}"
    if isinstance(value, Mapping):
        return f"dict of {len(value)}"
    return type(value).__name__


def load_weights(module: torch.nn.Module, weights: Mapping[str, Any], file_name: str, factory: str) -> tuple[Note, ...]:
    """Load a state_dict into a module, strictly; prefixes that all keys share are stripped and reported.

    Raises :class:`LoadError` CNV-3026 with every key that is missing, left over, or of another shape.
    """
    own = module.state_dict()
    keys, stripped = _without_prefixes(list(weights), own)
    renamed = dict(zip(keys, weights.values(), strict=True))
    _fill_ties(renamed, own)
    _check(renamed, own, file_name, factory, module)
    try:
        module.load_state_dict(renamed, strict=True)
    except RuntimeError as error:
        raise LoadError(
            "CNV-3026",
            f"the weights in {file_name} do not fit what {factory} makes: {str(error).splitlines()[-1].strip()}",
            hint="give the factory the arguments that the weights were trained with (--factory-arg)",
        ) from error
    if not stripped:
        return ()
    return (Note(text=f"all weights are named {''.join(stripped)}…; the prefix was taken off", subject=file_name),)


def _without_prefixes(keys: list[str], own: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    stripped: list[str] = []
    while keys and not set(keys) & set(own):
        prefix = next((prefix for prefix in PREFIXES if all(key.startswith(prefix) for key in keys)), None)
        if prefix is None:
            break
        keys = [key[len(prefix) :] for key in keys]
        stripped.append(prefix)
    return keys, stripped


def _fill_ties(given: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Give tied tensors that the file stores once (as safetensors does) under all their names."""
    places = {(own[key].data_ptr(), own[key].shape): key for key in own if key in given and _has_data(own[key])}
    for key in own:
        if key not in given and _has_data(own[key]):
            same = places.get((own[key].data_ptr(), own[key].shape))
            if same is not None:
                given[key] = given[same]


def _has_data(value: object) -> bool:
    return isinstance(value, torch.Tensor) and not torch.nn.parameter.is_lazy(value) and value.numel() > 0


def _check(
    given: Mapping[str, Any], own: Mapping[str, Any], file_name: str, factory: str, module: torch.nn.Module
) -> None:
    missing = [key for key in own if key not in given and not key.endswith("num_batches_tracked")]
    extra = [key for key in given if key not in own]
    wrong = [
        f"{key} is {list(given[key].shape)} in the file and {list(own[key].shape)} in the model"
        for key in own
        if isinstance(own[key], torch.Tensor)
        and isinstance(given.get(key), torch.Tensor)
        and given[key].shape != own[key].shape
        and not torch.nn.parameter.is_lazy(own[key])
    ]
    if not (missing or extra or wrong):
        return
    faults = [
        *wrong,
        *(f"{key} is not in the file" for key in missing),
        *(f"{key} is not in the model" for key in extra),
    ]
    shown = "; ".join(faults[:SHOWN]) + (f"; and {len(faults) - SHOWN} more" if len(faults) > SHOWN else "")
    raise LoadError(
        "CNV-3026",
        f"the weights in {file_name} do not fit the {type(module).__name__} that {factory} makes "
        f"({len(given)} tensors in the file, {len(own)} in the model): {shown}",
        hint="give the factory the arguments of the training, for example --factory-arg num_classes=7",
    )
