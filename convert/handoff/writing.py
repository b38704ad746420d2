"""The handoff bundle of one target, from the values of its run: ``<name>-<target>.handoff.tar``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from artifacts.digest import FileEntry, canonical_json, file_entry, sha256_bytes
from artifacts.manifest import ChainLink
from convert.backends.base import Backend
from convert.gate import THRESHOLDS
from convert.handoff.archive import Packed, write_archive
from convert.handoff.bundle import MEASURED, NAME, OUT, Bundle, SourceModel, place_of, sealed
from convert.handoff.script import PLAN, compile_script
from convert.request import Request, StageRun
from convert.stages.compile import has_soc_places, prepare_folder
from convert.values import CheckedGraph, CompileOptions, Forecast, ModelFile, OnnxGraph, Plan, Precision
from op_registry.targets import LITERAL_FIRST_GENERATION, find_target, members_of

VERIFY = Path(__file__).with_name("verify.py")
README = Path(__file__).with_name("readme.md.in")


class HandoffSource(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle is made from. ``device_files``: scripts of the backend for the device side, by name."""

    request: Request
    name: str
    model: ModelFile
    graph: OnnxGraph
    checked: CheckedGraph
    options: CompileOptions
    plan: Plan
    judged_as: Precision
    forecast: Forecast | None = None
    stages: tuple[StageRun, ...] = ()
    libraries: dict[str, str] = {}
    device_files: dict[str, str] = {}
    made: dict[str, str] = {}
    """Files that the plan needs beside those of the graph: name in the bundle → where it lies."""


def made_for(backend: Backend, plan: Plan, graph: OnnxGraph, folder: Path) -> dict[str, str]:
    """What the plan needs beside the graph and its own files, as the backend's ``prepare`` makes it for a compile here.

    ``folder`` is an empty one. Gives name in the bundle → where it lies.
    """
    prepare = getattr(backend, "prepare", None)
    if prepare is None:
        return {}
    prepare_folder(graph, plan, folder)
    known = set(folder.rglob("*"))
    prepare(plan, graph, folder)
    carried = {place_of(entry.name) for entry in graph.files}
    made = {str(path.relative_to(folder)): str(path) for path in folder.rglob("*") if path not in known}
    return {name: place for name, place in sorted(made.items()) if name not in carried and Path(place).is_file()}


def write_bundle(source: HandoffSource, folder: Path) -> tuple[Packed, Bundle]:
    """Write the bundle of a target into a folder; the same source gives the same bytes.

    Weights and samples stream into the archive; their digests are those that they have already.
    """
    carried = [msgspec.structs.replace(entry, name=place_of(entry.name)) for entry in source.graph.files]
    places = {place_of(entry.name): source.graph.path(entry.name) for entry in source.graph.files}
    for name, made in sorted(source.made.items()):
        places[name] = Path(made)
        carried.append(msgspec.structs.replace(file_entry(Path(made).parent, Path(made).name), name=name))
    plan_files = {f"{PLAN}/{name}": text.encode() for name, text in source.plan.files.items()}
    checked_first = [entry for entry in carried if entry.name.startswith("model/")] + _entries(plan_files)
    texts = {
        **plan_files,
        **{name: text.encode() for name, text in source.device_files.items()},
        "compile.sh": compile_script(
            source.plan,
            target=source.options.target,
            precision=source.options.precision,
            members=_members(source),
            files=checked_first,
        ).encode(),
        "verify.py": VERIFY.read_bytes(),
    }
    bundle = _bundle(source)
    texts["README.md"] = _readme(bundle, source).encode()
    bundle = sealed(msgspec.structs.replace(bundle, files=tuple(sorted((*carried, *_entries(texts))))))
    document = {**texts, NAME: canonical_json(bundle)}
    path = folder / f"{bundle.folder_name}.tar"
    packed = write_archive(path, bundle.folder_name, document, places, (OUT, MEASURED))
    return packed, bundle


def _entries(texts: Mapping[str, bytes]) -> list[FileEntry]:
    return [FileEntry(name=name, sha256=sha256_bytes(data), bytes=len(data)) for name, data in sorted(texts.items())]


def _members(source: HandoffSource) -> tuple[str, ...]:
    """The SoCs that ``compile.sh`` may choose; none where the plan names its own."""
    if not has_soc_places(source.plan):
        return ()
    target = find_target(source.options.target)
    return tuple(member.name for member in members_of(target) if member.name != LITERAL_FIRST_GENERATION)


def _declared(request: Request) -> tuple[str, ...]:
    """The targets of the run by name, where it has several and was to publish them."""
    names = tuple(dict.fromkeys(request.declared or (find_target(text).name for text in request.targets)))
    return names if request.publish and len(names) > 1 else ()


def _bundle(source: HandoffSource) -> Bundle:
    request = source.request
    bare: dict[str, Any] = {"folder": ""}
    options = msgspec.structs.replace(source.options, timeout=0.0, launcher=(), compilers=0)
    return Bundle(
        name=source.name,
        version=request.version,
        model=SourceModel(
            name=Path(source.model.path).name,
            format=source.model.format,
            sha256=source.model.sha256,
            bytes=source.model.bytes,
        ),
        target=source.options.target,
        declared=_declared(request),
        precision=source.options.precision,
        judged_as=source.judged_as,
        needs=needs_of(source.plan),
        members=_members(source),
        plan=source.plan,
        options=options,
        graph=msgspec.structs.replace(source.graph, **bare),
        checked=msgspec.structs.replace(source.checked, **bare),
        forecast=msgspec.structs.replace(source.forecast, **bare) if source.forecast else None,
        gate=request.gate,
        thresholds=msgspec.structs.asdict(THRESHOLDS[source.judged_as]) | request.gate,
        metrics=request.metrics,
        argmax=request.argmax,
        chain=tuple(
            ChainLink(stage=run.stage, digest=run.digest, parent=run.parent) for run in source.stages if run.parent
        ),
        libraries=source.libraries,
    )


def needs_of(plan: Plan) -> dict[str, str]:
    """What the machine that goes on must have; a SoC that is still open is left out."""
    return {name: text for name, text in plan.needs.items() if text and "{" not in text}


def _readme(bundle: Bundle, source: HandoffSource) -> str:
    needs = ", ".join(f"{name} {text}" for name, text in bundle.needs.items()) or bundle.plan.backend
    extra = "".join(f", `{name}` does it" for name in sorted(source.device_files) if name.endswith(".py"))
    return README.read_text(encoding="utf-8").format(
        name=bundle.name,
        target=bundle.target,
        needs=needs,
        output=bundle.plan.output,
        folder=bundle.folder_name,
        device_files=extra,
        fed="images" if any(entry.name.startswith("images/") for entry in source.graph.files) else "samples",
        soc_example=f"        # or SOC={bundle.members[0]} bash compile.sh" if bundle.members else "",
    )
