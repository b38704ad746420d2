"""``manifest.json``, schema 1: what an artifact is, what it was made from, with what, and how accurate it is.

Laws, each held by a test: equal manifests have equal bytes (canonical JSON); reading what was written gives the same
value; nothing in it depends on the clock or the machine (times and machine facts lie in ``run.json``); file names are
flat and appear once; every ``parent`` in the chain is the user's file or an earlier digest of the chain.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from artifacts.digest import Digest, FileEntry, canonical_json, sha256_bytes
from artifacts.errors import RegistryError
from artifacts.names import DIGEST_PATTERN, check_file_name, check_target
from artifacts.strictjson import parse_as

SCHEMA = 1
MANIFEST_NAME = "manifest.json"
RECORD_NAMES = ("run.json", "report.html")
"""What is about one run and not about the artifact: times, machine facts, the page for people."""
SIGNATURE_NAME = "signature.sigstore.json"
"""The file of a pulled folder that holds the signature of the other files."""
MANIFEST_JSON_BYTES = 16 << 20
MAX_FILES = 512

RanOn = Literal["device", "simulator", "host", "forecast", "none"]


class ModelSource(msgspec.Struct, frozen=True, kw_only=True):
    """The user's model file."""

    format: str
    sha256: Digest


class ChainLink(msgspec.Struct, frozen=True, kw_only=True):
    """One stage's value: its digest and the digest of what it was made from."""

    stage: str
    digest: Digest
    parent: Digest


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """One artifact of one model for one target.

    ``support`` and ``validation`` are JSON objects as ``convert --json`` prints them; of these the store itself reads
    ``supported``, ``passed`` and the metrics of ``outputs``.
    """

    schema: int = SCHEMA
    model: ModelSource
    chain: tuple[ChainLink, ...]
    target: str
    soc: str = ""
    """The exact part, where the toolchain compiles for one."""
    backend: str
    precision: str
    options: dict[str, str] = {}
    plan: tuple[str, ...] = ()
    """The compiler's argument list."""
    toolchain: dict[str, str] = {}
    libraries: dict[str, str] = {}
    support: dict[str, Any] = {}
    validation: dict[str, Any] = {}
    ran_on: RanOn = "none"
    """What the validated outputs were computed on; ``none`` where nothing was validated."""
    files: tuple[FileEntry, ...]
    """What a device needs; the first is the main file."""
    reports: tuple[FileEntry, ...] = ()
    """Documents that depend on nothing but the artifact: support and validation reports."""

    @property
    def digest(self) -> Digest:
        """The digest of the canonical JSON."""
        return sha256_bytes(manifest_bytes(self))

    @property
    def key(self) -> str:
        """What tells the artifacts of a version apart: the SoC, else the target, in lower case."""
        return (self.soc or self.target).lower()


def manifest_bytes(manifest: Manifest) -> bytes:
    """The canonical JSON of a manifest."""
    return canonical_json(manifest)


def parse_manifest(data: bytes, what: str = MANIFEST_NAME) -> Manifest:
    """Read a ``manifest.json`` from anywhere. ``what`` names it in errors.

    Raises:
        RegistryError: CNV-9008 (not valid), CNV-9015 (a file name that could escape), CNV-9017 (newer schema).
    """
    schema = parse_as(_Schema, data, what, limit=MANIFEST_JSON_BYTES).schema
    if schema != SCHEMA:
        raise RegistryError(
            "CNV-9017",
            f"{what} has schema {schema}; this version reads schema {SCHEMA}",
            hint="install the model-convert version that wrote it, or a newer one",
        )
    return check_manifest(parse_as(Manifest, data, what, limit=MANIFEST_JSON_BYTES), what)


class _Schema(msgspec.Struct):
    schema: int


def check_manifest(manifest: Manifest, what: str = MANIFEST_NAME) -> Manifest:
    """The manifest, if it keeps the laws of this module.

    Raises:
        RegistryError: CNV-9008 or CNV-9015.
    """
    check_target(manifest.target, "target")
    if manifest.soc:
        check_target(manifest.soc, "SoC")
    problems = [*_digest_problems(manifest), *_chain_problems(manifest), *_file_problems(manifest)]
    if problems:
        raise RegistryError("CNV-9008", f"{what} is not valid: {'; '.join(problems[:5])}", hint="publish it again")
    return manifest


def _digest_problems(manifest: Manifest) -> list[str]:
    digests = [manifest.model.sha256]
    digests += [digest for link in manifest.chain for digest in (link.digest, link.parent)]
    digests += [entry.sha256 for entry in (*manifest.files, *manifest.reports)]
    return [f"{digest[:80]!r} is no sha256 digest" for digest in digests if not DIGEST_PATTERN.fullmatch(digest)]


def _chain_problems(manifest: Manifest) -> list[str]:
    known, problems = {manifest.model.sha256}, []
    for link in manifest.chain:
        if link.parent not in known:
            problems.append(f"the parent of stage {link.stage[:80]!r} stands nowhere before it")
        known.add(link.digest)
    return problems


def _file_problems(manifest: Manifest) -> list[str]:
    entries = [*manifest.files, *manifest.reports]
    if not manifest.files:
        return ["it names no file"]
    if len(entries) > MAX_FILES:
        return [f"it names {len(entries)} files, more than {MAX_FILES}"]
    names = [check_file_name(entry.name) for entry in entries]
    taken = {name for name in names if names.count(name) > 1 or name in (MANIFEST_NAME, SIGNATURE_NAME, *RECORD_NAMES)}
    negative = [entry.name for entry in entries if entry.bytes < 0]
    return [f"the file name {name!r} is taken" for name in sorted(taken)] + [
        f"{name!r} has no size" for name in negative
    ]


def lowest(manifest: Manifest, metric: str) -> float | None:
    """The lowest value of a metric (``cosine``) over all validated outputs; None where nothing has it."""
    return min(_values(manifest, metric), default=None)


def highest(manifest: Manifest, metric: str) -> float | None:
    """The highest value of a metric (``rel_l2``) over all validated outputs; None where nothing has it."""
    return max(_values(manifest, metric), default=None)


def _values(manifest: Manifest, metric: str) -> list[float]:
    outputs = manifest.validation.get("outputs")
    rows = [row for row in outputs if isinstance(row, dict)] if isinstance(outputs, list) else []
    values = [row.get(metric) for row in rows]
    return [float(value) for value in values if isinstance(value, int | float) and not isinstance(value, bool)]


def verdict(manifest: Manifest) -> str:
    """``passed``, ``failed``, or ``ungated`` where no gate was judged."""
    passed = manifest.validation.get("passed")
    return {True: "passed", False: "failed"}.get(passed, "ungated") if isinstance(passed, bool) else "ungated"
