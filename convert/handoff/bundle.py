"""``bundle.json``, schema 1: everything that ``convert resume`` needs beside the files.

A bundle comes back from wherever it was carried. So the document carries its own digest, each file's digest stands in
it, what it says must hold together (the graph is the one that was checked, the chain leads from the user's file to it),
and nothing in it is ever executed: a compile at resume makes a plan of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath

import msgspec

from artifacts.digest import Digest, FileEntry, canonical_json, sha256_bytes
from artifacts.errors import ModelConvertError
from artifacts.manifest import ChainLink
from artifacts.names import DIGEST_PATTERN, check_file_name, check_name, check_version
from artifacts.strictjson import parse_json
from convert.errors import EXPECTED, UsageError
from convert.values import CheckedGraph, CompileOptions, Forecast, ModelFormat, OnnxGraph, Plan, Precision
from op_registry.targets import find_target

NAME = "bundle.json"
SCHEMA = 1
SUFFIX = ".handoff"
JSON_BYTES = 64 << 20
OUT = "out"
MEASURED = "measured"
COMPILED = "compiled.json"
LOG = "compile.log"
MAX_FILES = 10_000
MAX_TARGETS = 1000
KINDS = ("samples/", "reference/")
SOC_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,63}")


class SourceModel(msgspec.Struct, frozen=True, kw_only=True):
    """The user's model file: its name without any folder."""

    name: str
    format: ModelFormat
    sha256: Digest
    bytes: int = 0


class Bundle(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One target of a conversion, ready to be compiled elsewhere. ``files``: every file of the bundle but this one.

    ``needs`` is what the machine that compiles must have: ``toolchain`` and ``version``, and ``soc`` where it is known.
    ``members`` are the SoCs to choose from where the plan leaves it open. ``toolchain`` is the one the plan is for.
    """

    schema: int = SCHEMA
    digest: Digest = ""
    """Of this document with this field empty."""
    name: str
    version: str = ""
    model: SourceModel
    target: str
    declared: tuple[str, ...] = ()
    """The targets of the run that wrote it, where it had several: the version is published when all of them passed."""
    precision: Precision
    judged_as: Precision
    needs: dict[str, str]
    members: tuple[str, ...] = ()
    plan: Plan
    options: CompileOptions
    graph: OnnxGraph
    checked: CheckedGraph
    forecast: Forecast | None = None
    gate: dict[str, float] = {}
    thresholds: dict[str, float] = {}
    """For ``verify.py``: what ``gate`` makes of the table of ``judged_as``."""
    metrics: tuple[str, ...] = ()
    """Named for the record; the code of a metric is never taken from a bundle."""
    argmax: bool = False
    chain: tuple[ChainLink, ...] = ()
    libraries: dict[str, str] = {}
    files: tuple[FileEntry, ...] = ()

    @property
    def folder_name(self) -> str:
        """The one folder that the archive unpacks to."""
        return f"{self.name.replace('/', '-')}-{self.target}{SUFFIX}"


class CompiledElsewhere(msgspec.Struct, frozen=True, kw_only=True):
    """``compiled.json``, which ``compile.sh`` leaves: what it compiled for and with. Empty: not known.

    ``card``: ``seen`` where the toolkit compiles for the card of its machine, and that is the target's; ``not seen``
    where no card was found there; empty where it needs none.
    """

    schema: int = 1
    soc: str = ""
    version: str = ""
    card: str = ""


def sealed(bundle: Bundle) -> Bundle:
    """The bundle with its own digest."""
    bare = msgspec.structs.replace(bundle, digest="")
    return msgspec.structs.replace(bundle, digest=sha256_bytes(canonical_json(bare)))


def place_of(name: str) -> str:
    """Where a file of a graph lies in a bundle: model files in ``model/``, references beside their samples."""
    if "/" not in name:
        return f"model/{name}"
    folder, _, rest = name.partition("/")
    return f"samples/{rest.removesuffix('.npz')}.reference.npz" if folder == "reference" else name


def parse_bundle(data: bytes, what: str) -> Bundle:
    """Read a ``bundle.json`` from anywhere. ``what`` names it in errors.

    Raises :class:`UsageError`: CNV-2302, where it is no valid document, has a newer schema, was changed, or doesn't
    hold together (all that is wrong is named).
    """
    bundle = _decoded(data, what)
    if sealed(bundle).digest != bundle.digest:
        raise invalid(what, "it was changed after it was written: its digest is another one")
    if problems := list(_problems(bundle)):
        shown = "; ".join(problems[:5]) + (f"; and {len(problems) - 5} more" if len(problems) > 5 else "")
        raise invalid(what, shown)
    return bundle


def _decoded(data: bytes, what: str) -> Bundle:
    try:
        document = parse_json(data, what, limit=JSON_BYTES)
        schema = document.get("schema") if isinstance(document, Mapping) else None
        if schema != SCHEMA:
            raise invalid(what, f"its schema is {str(schema)[:40]}, and this version reads schema {SCHEMA}")
        return msgspec.convert(document, Bundle)
    except UsageError:
        raise
    except ModelConvertError as error:
        raise invalid(what, error.message.partition("is not valid: ")[2] or error.message) from error
    except (msgspec.ValidationError, OverflowError, RecursionError) as error:
        raise invalid(what, str(error)) from error


def invalid(what: str, why: str) -> UsageError:
    """The error for a bundle that can't be read."""
    return UsageError(
        "CNV-2302",
        f"{what} is not valid: {why}",
        hint="carry the bundle over again, or write it anew with the same `convert` command",
    )


def _problems(bundle: Bundle) -> Iterator[str]:
    yield from _name_problems(bundle)
    names = [entry.name for entry in bundle.files]
    if len(names) > MAX_FILES or len(set(names)) != len(names):
        yield "it names too many files, or one twice"
    yield from (f"the file name {name[:80]!r} leaves the folder" for name in names if not is_safe(name))
    yield from (f"{entry.name[:80]!r} has no digest" for entry in bundle.files if not is_entry(entry))
    listed = {entry.name: (entry.sha256, entry.bytes) for entry in bundle.files}
    for entry in bundle.graph.files:
        if not is_safe(entry.name) or listed.get(place_of(entry.name)) != (entry.sha256, entry.bytes):
            yield f"the graph's file {entry.name[:80]!r} is not in the bundle"
    yield from _chain_problems(bundle)


def _name_problems(bundle: Bundle) -> Iterator[str]:
    try:
        check_name(bundle.name)
        if bundle.version:
            check_version(bundle.version)
        check_file_name(bundle.plan.output)
        target = find_target(bundle.target)
    except EXPECTED as error:
        yield str(error.message)
        return
    if target.name != bundle.target or {bundle.options.target} != {bundle.target}:
        yield f"its target {bundle.target[:80]!r} is not the one of its options"
    if {bundle.plan.backend, bundle.options.backend} != {target.backend}:
        yield f"its backend is not {target.backend}, the one of {target.name}"
    if bundle.declared and (len(bundle.declared) > MAX_TARGETS or bundle.target not in bundle.declared):
        yield "its target is not among those that were declared for the version"
    yield from (f"{name[:80]!r} is no target" for name in bundle.declared[:MAX_TARGETS] if not _is_target(name))
    if bundle.options.precision != bundle.precision:
        yield "its precision is not the one of its options"
    socs = [soc for soc in (bundle.options.soc, *bundle.members) if soc]
    yield from (f"{soc[:80]!r} is no SoC" for soc in socs if not SOC_PATTERN.fullmatch(soc))


def _is_target(name: str) -> bool:
    try:
        return find_target(name).name == name
    except EXPECTED:
        return False


def _chain_problems(bundle: Bundle) -> Iterator[str]:
    if bundle.checked.parent != bundle.graph.digest:
        yield "the graph is not the one that was checked"
    known = {bundle.model.sha256}
    for link in bundle.chain:
        if link.parent not in known:
            yield f"the parent of stage {link.stage[:40]!r} stands nowhere before it"
        known.add(link.digest)
    if bundle.forecast is not None and bundle.forecast.parent not in known - {bundle.model.sha256}:
        yield "the forecast is of another graph"
    if not {bundle.graph.digest, bundle.checked.digest} <= known:
        yield "the chain does not lead from the model file to the graph"
    numbers = range(min(bundle.graph.sample_count, MAX_FILES))
    wanted = {f"{kind}{number:03d}.npz" for kind in KINDS for number in numbers}
    if wanted != {entry.name for entry in bundle.graph.files if entry.name.startswith(KINDS)}:
        yield "its samples are not those of the graph"
    if not any(entry.name == "model.onnx" for entry in bundle.graph.files):
        yield "it has no model"


def is_entry(entry: FileEntry) -> bool:
    """Whether an entry has a digest and a size."""
    return bool(DIGEST_PATTERN.fullmatch(entry.sha256)) and entry.bytes >= 0


def is_safe(name: str) -> bool:
    """Whether a name can be written below a folder: relative, no ``..``, printable, nothing that tools trip over."""
    parts = PurePosixPath(name).parts
    plain = name == "/".join(parts) and name.isprintable() and len(name) <= 255 and "\\" not in name
    return bool(parts) and plain and not name.startswith("/") and ".." not in parts
