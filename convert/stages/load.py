"""load: ``model file ─▶ LoadedModel``: what the file is, what it takes, and sample inputs for everything after.

TorchScript, torch.export, torch.save, safetensors ─▶ opened in eval mode, run once where it may be random
ONNX                                               ─▶ signature read, external data checked and hashed
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from artifacts.digest import file_entries
from convert.arrays import Array, save_npz
from convert.errors import UsageError
from convert.loading.inputs import InputText, parse_dims, parse_inputs
from convert.loading.onnx_files import outline_onnx
from convert.loading.onnx_inputs import check_readable, onnx_feeds, onnx_specs
from convert.loading.samples import Given, read_samples
from convert.loading.sniff import identify
from convert.loading.zips import check_sums
from convert.values import DimRange, LoadedModel, LoadOptions, ModelFile, Note

if TYPE_CHECKING:
    from convert.loading.torch_inputs import Inputs


def load_model(options: LoadOptions, folder: Path) -> LoadedModel:
    """Find out what a model file is, open it, and write sample inputs into ``folder``.

    ``folder`` gets ``samples/000.npz``, … (arrays by input name, leaves of nested arguments by path) and for torch
    formats ``samples/000.pt`` (``(args, kwargs)``) with ``samples/parameters.json`` (names of the positional
    parameters). Given samples are kept as they are; random ones come from ``options.seed``.

    Raises :class:`LoadError` CNV-3001 to CNV-3041 where the file can't be loaded, :class:`UsageError` CNV-2011 to
    CNV-2022 where ``--input``, ``--dim``, ``--samples`` or ``--factory`` are wrong.
    """
    texts, dims = parse_inputs(options.inputs), parse_dims(options.dims)
    file = identify(Path(options.path))
    given = developed_samples(options.samples, options.preprocess)
    calibration = developed_samples(options.calibration, options.preprocess)
    if file.format == "onnx":
        loaded = _load_onnx(file, given, texts, dims, seed=options.seed, folder=folder)
        feeds = onnx_feeds(loaded.inputs, calibration, texts, dims, options.seed).feeds if calibration else []
        return _with_calibration(loaded, feeds, folder)
    if file.container == "zip":
        check_sums(Path(file.path), file.bytes)
    return _load_torch(file, options, given, texts, dims, calibration=calibration, folder=folder)


def developed_samples(place: str, preprocess: str) -> list[Given]:
    """The samples that a place names; where the artifact preprocesses images, 8-bit ones as the floats they become."""
    given = read_samples(place) if place else []
    if not preprocess:
        return given
    from convert.backends.preprocess import developed

    made = []
    for sample in given:
        named = developed(sample.named, preprocess) if sample.named is not None else None
        # Arguments of a call have no names: an image is told by its form alone.
        places = developed({str(place): arg for place, arg in enumerate(sample.args)}, preprocess)
        kwargs = developed(sample.kwargs, preprocess)
        made.append(dataclasses.replace(sample, named=named, args=tuple(places.values()), kwargs=kwargs))
    return made


def _with_calibration(loaded: LoadedModel, feeds: Sequence[dict[str, Array]], folder: Path) -> LoadedModel:
    """The loaded model with inputs to calibrate with, as ``calibration/000.npz``, …"""
    if not feeds:
        return loaded
    files = file_entries(folder, _write_arrays(folder, feeds, "calibration"))
    return msgspec.structs.replace(loaded, calibration_count=len(feeds), files=tuple(sorted((*loaded.files, *files))))


def _load_onnx(
    file: ModelFile,
    given: Sequence[Given],
    texts: Sequence[InputText],
    dims: Sequence[DimRange],
    *,
    seed: int,
    folder: Path,
) -> LoadedModel:
    path = Path(file.path)
    outline = outline_onnx(path, file.bytes)
    check_readable(path, file.bytes)
    specs = onnx_specs(path, outline.inputs, texts, given)
    found = onnx_feeds(specs, given, texts, dims, seed)
    names = _write_arrays(folder, found.feeds)
    return LoadedModel(
        folder=str(folder),
        parent=file.sha256,
        format="onnx",
        inputs=found.specs,
        dims=found.dims,
        sample_count=len(found.feeds),
        sampled="given" if given else "random",
        notes=found.notes + (() if given else _sampled(len(found.feeds))),
        files=file_entries(folder, names),
    )


def _load_torch(
    file: ModelFile,
    options: LoadOptions,
    given: Sequence[Given],
    texts: Sequence[InputText],
    dims: Sequence[DimRange],
    *,
    calibration: Sequence[Given],
    folder: Path,
) -> LoadedModel:
    from convert.loading.repeats import check_repeats
    from convert.loading.torch_inputs import given_inputs, made_inputs, program_inputs
    from convert.loading.torch_models import open_file

    model = open_file(file, options)
    if given:
        found = given_inputs(model, given, texts, dims)
    elif model.program is not None:
        found = program_inputs(model, texts, dims, options.seed)
    elif texts or not model.signature.parameters:
        found = made_inputs(model, texts, dims, options.seed)
    else:
        raise _unknown_inputs(Path(file.path).name, model.signature.described())
    check_repeats(model, found.calls[0], Path(file.path).name)
    names = _write_calls(folder, found, model.signature.positional)
    calls = given_inputs(model, calibration, texts, dims).calls if calibration else []
    feeds = [dict(zip((spec.name for spec in found.specs), call.leaves(), strict=True)) for call in calls]
    loaded = LoadedModel(
        folder=str(folder),
        parent=file.sha256,
        format=file.format,
        inputs=found.specs,
        dims=found.dims,
        sample_count=len(found.calls),
        sampled="given" if found.given else "random",
        notes=model.notes + found.notes + (() if found.given else _sampled(len(found.calls))),
        files=file_entries(folder, names),
    )
    return _with_calibration(loaded, feeds, folder)


def _unknown_inputs(name: str, parameters: str) -> UsageError:
    return UsageError(
        "CNV-2013",
        f"{name} does not say which shapes and dtypes its inputs have: {parameters}",
        hint="give sample inputs (--samples FILE.npz or FILE.pt), or describe each: --input 'NAME:float32[1,3,64,64]'",
    )


def _sampled(count: int) -> tuple[Note, ...]:
    return (
        Note(text=f"{count} random sample{'s were' if count > 1 else ' was'} made; real ones (--samples) say more"),
    )


def _write_arrays(folder: Path, feeds: Sequence[dict[str, Array]], kind: str = "samples") -> list[str]:
    names = [f"{kind}/{index:03d}.npz" for index in range(len(feeds))]
    for name, feed in zip(names, feeds, strict=True):
        save_npz(folder / name, feed)
    return names


def _write_calls(folder: Path, found: Inputs, parameters: tuple[str, ...]) -> list[str]:
    import torch

    feeds = [dict(zip((spec.name for spec in found.specs), call.leaves(), strict=True)) for call in found.calls]
    names = _write_arrays(folder, feeds)
    for index, call in enumerate(found.calls):
        names.append(f"samples/{index:03d}.pt")
        torch.save((call.args, call.kwargs), folder / names[-1])
    names.append("samples/parameters.json")
    (folder / names[-1]).parent.mkdir(parents=True, exist_ok=True)
    (folder / names[-1]).write_bytes(msgspec.json.encode(parameters))
    return names
