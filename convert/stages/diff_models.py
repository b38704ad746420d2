"""Two model files of any format on the same inputs. Runs in the worker (imports onnxruntime, and torch where needed).

A ─▶ its samples, given or random ─▶ A's outputs
               └─▶ as B takes them ─▶ B's outputs, compared sample by sample
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from convert.arrays import Array, load_npz, save_npz
from convert.compare import compare_outputs, fold
from convert.errors import UsageError
from convert.loading.onnx_files import outline_onnx
from convert.loading.sniff import identify
from convert.measure import fingerprint
from convert.stages.adopt import adopt_onnx
from convert.stages.diff_options import DiffOptions, DiffResult, Side
from convert.stages.diff_report import pair_outputs, report_of, swapped
from convert.stages.load import load_model
from convert.user_metrics import load_metrics
from convert.values import ExportOptions, LoadedModel, LoadOptions


def compare_models(options: DiffOptions, folder: Path) -> DiffResult:
    """Run both models on A's samples and compare; ``folder`` gets what both are opened and run with.

    Raises UsageError CNV-2059 where B can't take A's inputs, CNV-2060 where a model fails on them, and what ``load``
    raises for either file.
    """
    left = load_model(options.left, folder / "a")
    ours, our_names = _outputs(left, options.left, folder / "a")
    shared = samples_for(options.right, left, folder / "shared")
    options_b = msgspec.structs.replace(options.right, samples=str(shared), inputs=(), dims=())
    right = load_model(options_b, folder / "b")
    theirs, their_names = _outputs(right, options_b, folder / "b")
    user = load_metrics(options.metrics)
    paired = (pair_outputs(_arrays(a, our_names), _arrays(b, their_names)) for a, b in zip(ours, theirs, strict=True))
    compared = (
        compare_outputs(reference, candidate, names, candidate_names=names, user=user)
        for reference, candidate, names in paired
    )
    comparison = fold(compared, inputs_differ=_differ(left))
    first = pair_outputs(_arrays(ours[0], our_names), _arrays(theirs[0], their_names)) if ours else ([], [], [])
    sides = [
        Side(path=source.path, sha256=model.parent, format=model.format, outputs=names)
        for source, model, names in ((options.left, left, our_names), (options.right, right, their_names))
    ]
    report = report_of(comparison, sides[0], sides[1], left.notes + swapped(*first))
    return DiffResult(left=sides[0], right=sides[1], report=report)


def _arrays(path: Path, names: Sequence[str]) -> dict[str, Array]:
    """Stored outputs in order, by name; two of one name keep their places as names."""
    arrays = [*load_npz(path).values()]
    known = names if len(set(names)) == len(names) == len(arrays) else [str(place) for place in range(len(arrays))]
    return dict(zip(known, arrays, strict=True))


def _differ(loaded: LoadedModel) -> bool:
    paths = (loaded.path(f"samples/{number:03d}.npz") for number in range(loaded.sample_count))
    return len({fingerprint(load_npz(path).values()) for path in paths}) > 1


# ------------------------------------------------------------------------------------------------------------- outputs


def _outputs(loaded: LoadedModel, source: LoadOptions, folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    """A model's outputs, one file for each sample so that memory holds one at a time, and their names."""
    if loaded.format == "onnx":
        return _run_onnx(loaded, source, folder / "graph")
    return _run_torch(loaded, source, folder / "outputs")


def _run_onnx(loaded: LoadedModel, source: LoadOptions, folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    folder.mkdir(parents=True)
    graph = adopt_onnx(loaded, source, ExportOptions(), folder)
    paths = [folder / "reference" / f"{number:03d}.npz" for number in range(loaded.sample_count)]
    if not all(path.is_file() for path in paths):
        raise _fails(source.path, "; ".join(note.text for note in graph.notes if note.level == "warning"))
    return paths, tuple(spec.name for spec in graph.outputs)


def _run_torch(loaded: LoadedModel, source: LoadOptions, folder: Path) -> tuple[list[Path], tuple[str, ...]]:
    from convert.loading.torch_models import open_model, sample_calls
    from convert.torch_export import ExporterFailed, run_torch

    model = open_model(loaded, source)
    paths: list[Path] = []
    names: tuple[str, ...] = ()
    for number, call in enumerate(sample_calls(loaded)):
        try:
            run = run_torch(model, call)
        except ExporterFailed as failure:
            raise _fails(source.path, str(failure)) from failure
        paths.append(folder / f"{number:03d}.npz")
        save_npz(paths[-1], {str(place): array for place, array in enumerate(run.outputs)})
        names = run.names
    return paths, names


def _fails(path: str, why: str) -> UsageError:
    return UsageError(
        "CNV-2060",
        f"{Path(path).name} can't be run on the samples: {why or 'no outputs'}",
        hint="give inputs that suit both models with --samples; `convert check` tells more of one model alone",
    )


# -------------------------------------------------------------------------------------------------------------- inputs


def samples_for(source: LoadOptions, left: LoadedModel, folder: Path) -> Path:
    """A folder with A's samples in the form that B takes: calls from torch to torch, else arrays by B's input names."""
    folder.mkdir(parents=True)
    file = identify(Path(source.path))
    for number in range(left.sample_count):
        name = f"{number:03d}"
        if file.format != "onnx" and left.format != "onnx":
            shutil.copyfile(left.path(f"samples/{name}.pt"), folder / f"{name}.pt")
            continue
        arrays = load_npz(left.path(f"samples/{name}.npz"))
        if file.format == "onnx":
            wanted = [value.name for value in outline_onnx(Path(file.path), file.bytes).inputs]
            arrays = _named_for(source.path, wanted, arrays)
        save_npz(folder / f"{name}.npz", _named_as_torch_takes(source, arrays) if file.format != "onnx" else arrays)
    return folder


def _named_for(path: str, wanted: Sequence[str], arrays: dict[str, Array]) -> dict[str, Array]:
    """A's arrays under B's input names: by name where A has them all, else by position."""
    if set(wanted) <= arrays.keys():
        return {name: arrays[name] for name in wanted}
    if len(wanted) == len(arrays):
        return dict(zip(wanted, arrays.values(), strict=True))
    raise UsageError(
        "CNV-2059",
        f"the inputs of the two models don't fit: A has {', '.join(arrays)}; {Path(path).name} has {', '.join(wanted)}",
        hint="compare models with the same inputs; an input that one lacks must have the same name on both sides",
    )


def _named_as_torch_takes(source: LoadOptions, arrays: dict[str, Array]) -> dict[str, Array]:
    """An ONNX model's arrays by name where ``forward`` knows such parameters, else in order."""
    from convert.loading.torch_models import open_file

    known = {parameter.name for parameter in open_file(identify(Path(source.path)), source).signature.parameters}
    if all(name.partition(".")[0] in known for name in arrays):
        return arrays
    return {f"arr_{place}": array for place, array in enumerate(arrays.values())}
