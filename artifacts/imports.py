"""Registering an artifact that was built elsewhere: stored like any other, and marked as not gated by us."""

from __future__ import annotations

from pathlib import Path

import msgspec

from artifacts.digest import FileEntry, file_entry
from artifacts.durable import reading
from artifacts.errors import UsageError
from artifacts.manifest import Manifest, ModelSource
from artifacts.names import DIGEST_PATTERN, check_file_name
from artifacts.publish import Published, PublishRequest, TargetRelease, publish


class ImportRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact from elsewhere. The first of ``files`` is the main one; ``source``: the model's digest, if known."""

    files: tuple[Path, ...]
    name: str
    version: str = ""
    target: str
    soc: str = ""
    precision: str = "unknown"
    reports: tuple[Path, ...] = ()
    source: str = ""
    toolchain: dict[str, str] = {}


def import_files(root: Path, request: ImportRequest) -> Published:
    """Publish files that another tool made.

    Raises:
        UsageError: CNV-2402, CNV-2403, CNV-2407 (no file, two of one name, or ``source`` is no digest).
        RegistryError: CNV-9004 (a file can't be read), and those of publishing.
        ResourceLimit: CNV-1003.
    """
    paths = {path.name: path for path in (*request.files, *request.reports)}
    if not request.files or len(paths) != len(request.files) + len(request.reports):
        raise UsageError("CNV-2407", "nothing to import, or two files of one name", hint="name each file once")
    if request.source and not DIGEST_PATTERN.fullmatch(request.source):
        raise UsageError(
            "CNV-2407", f"{request.source[:80]!r} is no digest", hint="write sha256: and 64 digits of sha256sum"
        )
    files = tuple(_entry(path) for path in request.files)
    manifest = Manifest(
        model=ModelSource(format="unknown", sha256=request.source or files[0].sha256),
        chain=(),
        target=request.target,
        soc=request.soc,
        backend="imported",
        precision=request.precision,
        toolchain=request.toolchain,
        files=files,
        reports=tuple(sorted(_entry(path) for path in request.reports)),
    )
    release = TargetRelease(manifest=manifest, sources=paths)
    return publish(root, PublishRequest(name=request.name, version=request.version, targets=(release,)))


def _entry(path: Path) -> FileEntry:
    check_file_name(path.name)
    with reading(f"reading {path}"):
        return file_entry(path.parent, path.name)
