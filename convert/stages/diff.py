"""Run two model files on the same inputs, or read two files of outputs, and compare. Runs in the worker."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

from artifacts.digest import sha256_file
from convert.arrays import Array, load_npz
from convert.compare import compare_outputs, fold
from convert.errors import UsageError
from convert.loading.zips import DAMAGE
from convert.stages.diff_options import DiffOptions, DiffResult, Side
from convert.stages.diff_report import pair_outputs, report_of, swapped
from convert.user_metrics import load_metrics

ZIP = b"PK\x03\x04"


def run_both(options: DiffOptions, folder: Path) -> DiffResult:
    """Compare two files, output by output. ``folder``: where samples may be written.

    Raises UsageError CNV-2057 where one side is a file of outputs and the other isn't, CNV-2058 where a file of
    outputs can't be read, CNV-2059 where the inputs of two models don't fit, and LoadError for a model file.
    """
    left, right = Path(options.left.path), Path(options.right.path)
    stored = [_holds_arrays(path) for path in (left, right)]
    if all(stored):
        return _compare_stored(left, right, options.metrics)
    if any(stored):
        raise _mixed(*((left, right) if stored[0] else (right, left)))
    from convert.stages.diff_models import compare_models

    return compare_models(options, folder)


def _holds_arrays(path: Path) -> bool:
    """Whether a file is a zip of .npy members, whatever it is called."""
    try:
        with path.open("rb") as stream:
            if stream.read(4) != ZIP:
                return path.suffix == ".npz"
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except DAMAGE:
        return path.suffix == ".npz"
    return bool(names) and all(name.endswith(".npy") for name in names)


def _compare_stored(left: Path, right: Path, metrics: Sequence[str]) -> DiffResult:
    ours, theirs = _read(left), _read(right)
    reference, candidate, names = pair_outputs(ours, theirs)
    compared = compare_outputs(reference, candidate, names, candidate_names=names, user=load_metrics(metrics))
    sides = [
        Side(path=str(path), sha256=sha256_file(path), format="npz", outputs=tuple(arrays))
        for path, arrays in ((left, ours), (right, theirs))
    ]
    report = report_of(fold([compared]), sides[0], sides[1], swapped(reference, candidate, names))
    return DiffResult(left=sides[0], right=sides[1], report=report)


def _read(path: Path) -> dict[str, Array]:
    try:
        return load_npz(path)
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(
            "CNV-2058",
            f"{path} can't be read as a file of outputs: {why}",
            hint="write it with numpy.savez(path, name=array, …); arrays of objects are never read",
        ) from error


def _mixed(outputs: Path, model: Path) -> UsageError:
    return UsageError(
        "CNV-2057",
        f"{outputs} holds outputs (.npz), and {model} does not",
        hint="compare two model files, or two .npz of outputs",
    )
