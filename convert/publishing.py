"""publish: what a conversion knows of its artifacts, as manifests of the registry."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from artifacts.digest import Digest, canonical_json, file_entry
from artifacts.manifest import RECORD_NAMES, ChainLink, Manifest, ModelSource
from artifacts.names import target_tag, version_tag
from artifacts.publish import Published, PublishRequest, TargetRelease, publish
from artifacts.registry import Registry, root_of
from artifacts.versions import Versions
from convert.acceptance.stored import published_names
from convert.request import (
    Conversion,
    Request,
    StageRun,
    TargetResult,
    exporters_json,
    status_of,
    support_json,
    validation_json,
)
from convert.validation_file import replace_file
from convert.values import CompiledArtifact, Note, Precision
from op_registry.targets import find_target

REPORTS = ("support.json", "validation.json")


def publish_targets(
    conversion: Conversion, compiled: dict[str, CompiledArtifact], registry: str, work: Path
) -> tuple[Conversion, StageRun]:
    """Publish the targets of a conversion that passed; gives the conversion with their references.

    All targets declared for the version have passed: it is published as one. Others are still to come (they failed, or
    were handed off): those that passed go to a draft of the version, which is published with the last of them.
    ``registry`` is a folder or ``oci://HOST/PROJECT``; ``work`` a folder for a remote's temporary layout.
    """
    begun, cpu = time.monotonic(), time.process_time()
    passed = [result for result in conversion.targets if has_passed(result)]
    for result in passed:
        _write_run(conversion, result)
    releases = tuple(_release(conversion, result, compiled[result.target]) for result in passed)
    request = PublishRequest(name=conversion.name, version=conversion.request.version, targets=releases)
    placed = _placed(request, registry, work, _declared(conversion.request))
    run = StageRun(
        stage="publish",
        seconds=time.monotonic() - begun,
        cpu_seconds=time.process_time() - cpu,
        cached=placed.already,
        digest=placed.digest,
    )
    targets = tuple(_published(result, placed, run) if has_passed(result) else result for result in conversion.targets)
    status = status_of(targets)
    return msgspec.structs.replace(conversion, status=status, version=placed.version, targets=targets), run


def has_passed(result: TargetResult) -> bool:
    """Whether a target came to a verdict, and the verdict is good."""
    return result.error is None and result.verdict is not None and result.verdict.passed


class _Placed(msgspec.Struct, frozen=True, kw_only=True):
    """Where targets went: a version, or where ``missing`` names some, its draft."""

    version: str
    digest: Digest
    refs: dict[str, str]
    missing: tuple[str, ...] = ()
    already: bool = False


def _declared(request: Request) -> tuple[str, ...]:
    return request.declared or tuple(find_target(text).name for text in request.targets)


def _placed(request: PublishRequest, registry: str, work: Path, declared: tuple[str, ...]) -> _Placed:
    root = root_of(registry)
    complete = len(set(declared)) == len(request.targets)
    if complete and (root is None or not _has_drafts(root, request.name)):
        done = publish(root, request) if root is not None else _publish_remote(registry, request, work)
        refs = {target.target: target.ref for target in done.targets}
        return _Placed(version=done.version, digest=done.digest, refs=refs, already=done.already)
    # Imported here: a version that is whole needs none of it.
    from artifacts.drafts import collect
    from convert.catalog.shelf import draft_tag, open_shelf

    with open_shelf(registry, request.name) as shelf:
        draft = collect(shelf.root, request, declared=declared)
        base = version_tag(draft.version) if draft.sealed else draft_tag(draft.version)
        tags = {one.manifest.target: target_tag(base, one.manifest.target, one.manifest.soc) for one in request.targets}
        shelf.send([base] if draft.sealed else [base, *tags.values()])
    refs = {target: f"{request.name}:{tag}" for target, tag in tags.items()}
    missing = () if draft.sealed else tuple(find_target(name).name for name in draft.missing)
    return _Placed(version=draft.version, digest=draft.digest, refs=refs, missing=missing)


def _has_drafts(root: Path, name: str) -> bool:
    layout = Registry(root).layout(name)
    return layout.exists and bool(Versions(layout, layout.refs()).drafts)


def _publish_remote(registry: str, request: PublishRequest, work: Path) -> Published:
    # Imported here: the HTTP client costs a tenth of a second, which only a remote needs.
    from artifacts.place import publish_remote

    return publish_remote(registry, request, work)


def _published(result: TargetResult, placed: _Placed, run: StageRun) -> TargetResult:
    assert result.artifact is not None
    artifact = msgspec.structs.replace(result.artifact, ref=placed.refs[result.target])
    stages = (*result.stages, run)
    if not placed.missing:
        return msgspec.structs.replace(result, status="published", stages=stages, artifact=artifact)
    names = ", ".join(placed.missing)
    name = artifact.ref.partition(":")[0]
    note = Note(
        text=f"kept as {artifact.ref}, a draft of version {placed.version}: it is published when {names} passed too"
        f" (`artifacts seal {name} {placed.version} --reason TEXT` publishes it without)"
    )
    return msgspec.structs.replace(
        result, status="built", stages=stages, artifact=artifact, notes=(*result.notes, note)
    )


def _release(conversion: Conversion, result: TargetResult, artifact: CompiledArtifact) -> TargetRelease:
    folder = Path(result.folder)
    sources = {entry.name: artifact.path(entry.name) for entry in artifact.files}
    return TargetRelease(
        manifest=_manifest(conversion, result, artifact),
        sources={**sources, **{name: folder / name for name in reports_of(folder)}},
        records={name: folder / name for name in RECORD_NAMES},
        link=True,
    )


def _manifest(conversion: Conversion, result: TargetResult, artifact: CompiledArtifact) -> Manifest:
    assert conversion.model is not None and result.report is not None and result.plan is not None
    folder = Path(result.folder)
    return Manifest(
        model=ModelSource(format=conversion.model.format, sha256=conversion.model.sha256),
        chain=tuple(
            ChainLink(stage=run.stage, digest=run.digest, parent=run.parent) for run in result.stages if run.parent
        ),
        target=result.target,
        soc=result.soc,
        backend=result.backend,
        precision=result.precision,
        options=conversion.request.options,
        plan=result.plan.argv,
        toolchain=result.toolchain,
        libraries=conversion.versions,
        support={**(support_json(result.support) or {}), **graph_history(result)},
        validation=validation_json(result) or {},
        ran_on=result.report.ran_on,
        files=artifact.files,
        reports=tuple(file_entry(folder, name) for name in reports_of(folder)),
    )


def reports_of(folder: Path) -> tuple[str, ...]:
    """Names of the documents that go into the registry with an artifact: reports, and what running it needs."""
    return (*REPORTS, *published_names(folder))


def graph_history(result: TargetResult) -> dict[str, Any]:
    """What was done to the graph so that the target takes it, with proofs, and how torch's exporters were judged.

    Nothing where nothing was. Reasons in words stay out: they may hold what is true of one machine only.
    """
    done = [entry for run in result.stages for entry in run.adapted]
    judged = [one for run in result.stages for one in run.exporters]
    exporters = {"exporters": exporters_json(judged, reasons=False)} if judged else {}
    return {**({"adapted": done} if done else {}), **exporters}


def _write_run(conversion: Conversion, result: TargetResult) -> None:
    """``run.json``: times and machine facts, apart from what the artifact is."""
    replace_file(Path(result.folder) / "run.json", canonical_json(run_facts(conversion, result.stages)))


def run_facts(conversion: Conversion, stages: Sequence[StageRun]) -> dict[str, Any]:
    """When, where and how fast a conversion ran."""
    return {
        "schema": 1,
        "finished": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "model": Path(conversion.request.load.path).name,
        "machine": {
            "system": platform.platform(),
            "processor": platform.machine(),
            "cores": len(os.sched_getaffinity(0)),
            "memory": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        },
        "stages": [
            {
                "stage": run.stage,
                "seconds": round(run.seconds, 3),
                "cpu_seconds": round(run.cpu_seconds, 3),
                "peak_rss": run.peak_rss,
                "cached": run.cached,
            }
            for run in stages
        ],
    }


def release_of(conversion: Conversion, result: TargetResult) -> TargetRelease:
    """One passed target, ready to be published from the files of its folder, which are copied.

    For whoever publishes targets one by one, after the conversion's own folders are gone.
    """
    assert result.artifact is not None and result.plan is not None
    _write_run(conversion, result)
    artifact = CompiledArtifact(
        parent=conversion.model.sha256 if conversion.model else "",
        target=result.target,
        backend=result.backend,
        precision=msgspec.convert(result.precision, Precision),
        plan=result.plan,
        files=result.artifact.files,
        folder=result.folder,
    )
    return msgspec.structs.replace(_release(conversion, result, artifact), link=False)
