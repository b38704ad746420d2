"""What is kept with an artifact so that it can be run and judged where nothing else of its conversion is.

    artifact.json   the plan, what the artifact needs, its inputs and outputs
    samples.zip     samples/000.npz and reference/000.npz of the graph (and what its ties are), at most 8 MiB

Inputs that the user gave stay in the folder of the conversion; only made-up ones go into a registry along with it.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path, PurePosixPath

import msgspec

from artifacts.digest import canonical_json
from convert.acceptance.values import StoredArtifact
from convert.errors import UsageError
from convert.loading.zips import DAMAGE
from convert.validation_file import replace_file
from convert.values import CompiledArtifact, OnnxGraph

ARTIFACT = "artifact.json"
SAMPLES = "samples.zip"
KEPT_BYTES = 8 << 20
ARTIFACT_BYTES = 16 << 20
"""No artifact.json of ours comes near this many bytes."""
KEPT_FOLDERS = ("samples", "reference")
BESIDE = ("ties", "images")
"""What a sample may have beside its reference: what its index outputs searched, and the 8-bit image it is made of."""
EPOCH = (1980, 1, 1, 0, 0, 0)


def write_stored(artifact: CompiledArtifact, graph: OnnxGraph, folder: Path, *, given: bool) -> None:
    """Write ``artifact.json`` and, where the graph has samples with reference outputs, ``samples.zip``.

    ``given``: the samples are the user's own.
    """
    stored = StoredArtifact(
        artifact=msgspec.structs.replace(artifact, folder=""),
        inputs=graph.inputs,
        outputs=graph.outputs,
        dims=graph.dims,
        opset=graph.opset,
        sampled="given" if given else "random",
    )
    replace_file(folder / ARTIFACT, canonical_json(stored))
    kept = _zipped(graph)
    if kept:
        replace_file(folder / SAMPLES, kept)
    else:
        (folder / SAMPLES).unlink(missing_ok=True)


def published_names(folder: Path) -> tuple[str, ...]:
    """Which of these files go into a registry with the artifact of a folder."""
    if not (folder / ARTIFACT).is_file():
        return ()
    given = read_stored(folder / ARTIFACT).sampled == "given"
    return (ARTIFACT,) if given or not (folder / SAMPLES).is_file() else (ARTIFACT, SAMPLES)


def _zipped(graph: OnnxGraph) -> bytes:
    """The first samples that have reference outputs, as many as fit; the same samples give the same bytes."""
    stream, used = io.BytesIO(), 0
    with zipfile.ZipFile(stream, "w") as archive:
        for number in range(graph.sample_count):
            names = [f"{part}/{number:03d}.npz" for part in (*KEPT_FOLDERS, *BESIDE)]
            names = [name for name in names if graph.folder and graph.path(name).is_file()]
            paths = [graph.path(name) for name in names]
            if len([name for name in names if not name.startswith(BESIDE)]) < len(KEPT_FOLDERS):
                break
            used += sum(path.stat().st_size for path in paths)
            if used > KEPT_BYTES:
                break
            for name, path in zip(names, paths, strict=True):
                archive.writestr(zipfile.ZipInfo(name, EPOCH), path.read_bytes())
        count = len(archive.namelist())
    return stream.getvalue() if count else b""


def read_stored(path: Path) -> StoredArtifact:
    """Read an ``artifact.json`` from anywhere. Raises :class:`UsageError` CNV-2281 where it is none of ours."""
    try:
        with path.open("rb") as stream:
            data = stream.read(ARTIFACT_BYTES + 1)
        if len(data) > ARTIFACT_BYTES:
            raise ValueError(f"it is larger than {ARTIFACT_BYTES >> 20} MiB")
        stored = msgspec.json.decode(data, type=StoredArtifact)
        if stored.schema != 1:
            raise ValueError(f"it has schema {stored.schema}, and this version reads schema 1")
        if not stored.artifact.files:
            raise ValueError("it names no file")
        for entry in stored.artifact.files:
            _check_name(entry.name)
    except (OSError, ValueError, RecursionError) as error:
        raise not_an_artifact(str(path), str(error)) from error
    return stored


def _check_name(name: str) -> None:
    parts = PurePosixPath(name).parts
    if not parts or PurePosixPath(name).is_absolute() or ".." in parts or "\0" in name or "\\" in name:
        raise ValueError(f"it names the file {name[:80]!r}, which leaves the folder")


def not_an_artifact(place: str, why: str) -> UsageError:
    """The error for what is no artifact."""
    return UsageError(
        "CNV-2281",
        f"{place} is no artifact: {why}",
        hint="give the folder OUT/NAME/TARGET of a conversion, one that `artifacts pull` made, an .onnx file for the"
        " cpu, or a reference NAME:VERSION of the registry",
    )


def unpack_kept(path: Path, folder: Path) -> int:
    """Unpack a ``samples.zip`` into a folder; gives how many samples it has. Raises :class:`UsageError` CNV-2281."""
    try:
        with zipfile.ZipFile(path) as archive:
            infos = {info.filename: info for info in archive.infolist()}
            if sum(info.file_size for info in infos.values()) > 2 * KEPT_BYTES:
                raise ValueError("it expands to more than such a file can hold")
            count = 0
            while all(f"{part}/{count:03d}.npz" in infos for part in KEPT_FOLDERS):
                for part in (*KEPT_FOLDERS, *BESIDE):
                    if (name := f"{part}/{count:03d}.npz") in infos:
                        (folder / part).mkdir(parents=True, exist_ok=True)
                        (folder / name).write_bytes(archive.read(infos[name]))
                count += 1
    except DAMAGE as error:
        raise not_an_artifact(str(path), f"its samples can't be read: {error}") from error
    if not count:
        raise not_an_artifact(str(path), "it holds no samples")
    return count


def is_kept(path: Path) -> bool:
    """Whether a file is a ``samples.zip`` of ours."""
    try:
        with zipfile.ZipFile(path) as archive:
            return f"{KEPT_FOLDERS[1]}/000.npz" in archive.namelist()
    except DAMAGE:
        return False
