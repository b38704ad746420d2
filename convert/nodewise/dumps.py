"""What vendors' tools leave of a run, node by node, read as departures.

    a table (.csv)    of `msit debug compare` / `msprobe compare -m offline_model`: one row for each operator
    a trace           of MIGraphX with MIGRAPHX_TRACE_EVAL=2: what each instruction's output has
    tensors           a .npz by the names of values or nodes, or a folder of .npy files (``/`` and the like as ``_``)

Columns and bars of the table: msit's compare component (Ascend/msit 3558109, cmp_process.py). The trace's lines:
src/program.cpp of MIGraphX (and of Hygon's DTK). MagicMind writes its dumps in a format that is not public; turn them
into .npz first.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from artifacts.errors import first_line
from convert.arrays import Array, load_npy, load_npz
from convert.errors import UsageError
from convert.nodewise.align import relative_error
from convert.nodewise.values import Departure
from convert.precision.flow import Flow

LARGEST = 256 << 20
MOST_FILES = 20_000
COSINE, EUCLIDEAN = 0.99, 0.05
"""The bars of msit's own comparison."""
INSTRUCTION = re.compile(r"^Run instruction: (?:(?P<module>\S+):)?(?P<name>@?[\w.]+) = (?P<op>[\w:@]+)")
CLASSES = re.compile(r"^Output has (?P<kinds>.+)$")
UNSAFE = re.compile(r"[^A-Za-z0-9]+")
"""What dumping tools replace in the names of files."""
COLUMNS = ("OpType", "NPUDump", "GroundTruth", "CosineSimilarity", "RelativeEuclideanDistance")


def read_dump(path: Path) -> list[Departure] | dict[str, Array]:
    """Departures that a table or trace tells, or tensors by name. Raises UsageError CNV-2324."""
    try:
        if path.is_dir():
            return _folder(path)
        if path.stat().st_size > LARGEST and path.suffix != ".npz":
            raise _unreadable(path, f"it has more than {LARGEST >> 20} MiB")
        if not path.is_file() and path.exists():
            raise _unreadable(path, "it is neither a file nor a folder")
        if path.suffix == ".npz":
            return load_npz(path)
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except (OSError, ValueError) as error:
        raise _unreadable(path, first_line(error)) from error
    if "Run instruction:" in text:
        return list(_trace(text))
    rows = list(csv.DictReader(io.StringIO(text)))
    if rows and set(COLUMNS) <= set(rows[0]):
        return [row for line in rows if (row := _table_row(line)) is not None]
    raise _unreadable(path, "it is no comparison table of msit or msprobe, no trace of MIGraphX and no .npz")


def _unreadable(path: Path, why: str) -> UsageError:
    return UsageError(
        "CNV-2324",
        f"--dump {path} can't be read: {why}",
        hint="give the result_*.csv of msit debug compare, what MIGRAPHX_TRACE_EVAL=2 prints, a .npz by value name, or "
        "a folder of .npy files",
    )


def _folder(path: Path) -> dict[str, Array]:
    """Tensors of a folder: ``NAME.npy``; of several of one name the first counts."""
    files = sorted(item for item in path.iterdir() if item.suffix == ".npy" and item.is_file())
    if not files or len(files) > MOST_FILES:
        raise ValueError(f"the folder has {len(files)} .npy files")
    return {item.stem: load_npy(item) for item in files}


def _table_row(line: Mapping[str, str]) -> Departure | None:
    cosine, distance = _number(line["CosineSimilarity"]), _number(line["RelativeEuclideanDistance"])
    broken = (cosine is not None and not cosine >= COSINE) or (distance is not None and not distance <= EUCLIDEAN)
    if not broken:
        return None
    told = f"cosine {line['CosineSimilarity']}, relative Euclidean distance {line['RelativeEuclideanDistance']}"
    why = line.get("CompareFailReason", "") or ""
    return Departure(
        node=line["NPUDump"],
        op=line["OpType"],
        output=line["NPUDump"],
        counterpart=line["GroundTruth"],
        by="dump",
        error=distance if distance is not None and np.isfinite(distance) else 1e9,
        reason=told + (f"; {why}" if why.strip() else ""),
    )


def _number(text: str) -> float | None:
    """A number of the table; None where the tool could not compute it."""
    try:
        return float(text)
    except (TypeError, ValueError):
        return None


def _trace(text: str) -> Iterator[Departure]:
    """Instructions whose output has NaN or infinities, in the order of the run."""
    name = op = ""
    for line in text.splitlines():
        if begun := INSTRUCTION.match(line):
            name, op = begun["name"], begun["op"]
        elif (told := CLASSES.match(line)) and name:
            kinds = [kind.strip() for kind in told["kinds"].split(",")]
            odd = [kind for kind in kinds if kind in ("nan", "inf")]
            if odd:
                reason = f"its output has {' and '.join(odd)}"
                yield Departure(node=name, op=op, output=name, counterpart="", by="dump", error=1e9, reason=reason)


def by_value_name(tensors: Mapping[str, Array], flow: Flow) -> dict[str, Array]:
    """Tensors under the names of A's values. A file may be called after the node, and without what paths can't hold.

    What nothing, or more than one thing, is called stays as it is.
    """
    nodes = {step.name: step.outputs[0] for step in flow.steps if not step.link and len(step.outputs) == 1}
    names = nodes | {value: value for value in flow.makers}
    plain: dict[str, set[str]] = {}
    for name, value in names.items():
        plain.setdefault(_plain(name), set()).add(value)
    found = {name: array for name, array in tensors.items() if name in flow.makers}
    for name, array in tensors.items():
        alike = {names[name]} if name in names else plain.get(_plain(name), set())
        found.setdefault(next(iter(alike)) if len(alike) == 1 else name, array)
    return found


def _plain(name: str) -> str:
    return UNSAFE.sub("_", name).strip("_")


def against(tensors: Mapping[str, Array], exact: Mapping[str, Array], limit: float) -> dict[str, float]:
    """The relative L2 of each dumped tensor whose name A knows, where it is beyond the limit; shapes may differ."""
    errors = {}
    for name, values in tensors.items():
        wanted = exact.get(name)
        if wanted is not None and wanted.size == values.size:
            error = relative_error(wanted, values)
            if error > limit:
                errors[name] = error
    return errors
