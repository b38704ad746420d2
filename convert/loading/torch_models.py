"""Opening a torch model of any format, ready to run: in eval mode, on the CPU, with what was done to it reported.

Runs in the worker only (imports torch). A model is opened once per process: the export stage, which runs right
after ``load`` in the same worker, gets the same object.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import torch

from convert.errors import LoadError
from convert.loading.calls import Call, to_array, to_tensor
from convert.loading.modules import open_pickled, open_safetensors
from convert.loading.opened import OpenModel
from convert.loading.programs import open_exported
from convert.loading.scripts import open_script
from convert.loading.sniff import identify
from convert.values import LoadedModel, LoadOptions, ModelFile

__all__ = ["Call", "OpenModel", "open_file", "open_model", "sample_calls", "to_array", "to_tensor"]

OPENERS: dict[str, Callable[[ModelFile, LoadOptions], OpenModel]] = {
    "torchscript": open_script,
    "exported_program": open_exported,
    "module": open_pickled,
    "checkpoint": open_pickled,
    "state_dict": open_pickled,
    "safetensors": open_safetensors,
}

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


def sample_calls(loaded: LoadedModel) -> list[Call]:
    """The calls that ``load`` kept, in order."""
    parameters = tuple(_parameters(loaded))
    calls = []
    for index in range(loaded.sample_count):
        args, kwargs = torch.load(loaded.path(f"samples/{index:03d}.pt"), weights_only=True)
        calls.append(Call(tuple(args), dict(kwargs), parameters))
    return calls


def _parameters(loaded: LoadedModel) -> list[str]:
    return msgspec.json.decode(loaded.path("samples/parameters.json").read_bytes(), type=list[str])
