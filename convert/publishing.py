"""publish: what a conversion knows of its artifacts, as manifests of the registry."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from artifacts.digest import canonical_json, file_entry
from artifacts.manifest import RECORD_NAMES, ChainLink, Manifest, ModelSource
from artifacts.publish import Published, PublishRequest, TargetRelease, publish
from artifacts.registry import root_of
from convert.acceptance.stored import published_names
from convert.request import Conversion, StageRun, TargetResult, support_json, validation_json
from convert.validation_file import replace_file
from convert.values import CompiledArtifact, Precision

REPORTS = ("support.json", "validation.json")


def publish_targets(
    conversion: Conversion, compiled: dict[str, CompiledArtifact], registry: str, work: Path
) -> tuple[Conversion, StageRun]:
    """Publish all targets of a conversion as one version; gives the conversion with its references.

    ``registry`` is a folder or ``oci://HOST/PROJECT``; ``work`` a folder for a remote's temporary layout.
    """
    begun, cpu = time.monotonic(), time.process_time()
    for result in conversion.targets:
        _write_run(conversion, result)
    releases = tuple(_release(conversion, result, compiled[result.target]) for result in conversion.targets)
    request = PublishRequest(name=conversion.name, version=conversion.request.version, targets=releases)
    root = root_of(registry)
    published = publish(root, request) if root is not None else _publish_remote(registry, request, work)
    run = StageRun(
        stage="publish",
        seconds=time.monotonic() - begun,
        cpu_seconds=time.process_time() - cpu,
        cached=published.already,
        digest=published.digest,
    )
    refs = {target.target: target.ref for target in published.targets}
    targets = tuple(_published(result, refs[result.target], run) for result in conversion.targets)
    changed = msgspec.structs.replace(conversion, status="published", version=published.version, targets=targets)
    return changed, run


def _publish_remote(registry: str, request: PublishRequest, work: Path) -> Published:
    # Imported here: the HTTP client costs a tenth of a second, which only a remote needs.
    from artifacts.place import publish_remote

    return publish_remote(registry, request, work)


def _published(result: TargetResult, ref: str, run: StageRun) -> TargetResult:
    assert result.artifact is not None
    return msgspec.structs.replace(
        result,
        status="published",
        stages=(*result.stages, run),
        artifact=msgspec.structs.replace(result.artifact, ref=ref),
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
        support={**(support_json(result.support) or {}), **_adapted(result)},
        validation=validation_json(result) or {},
        ran_on=result.report.ran_on,
        files=artifact.files,
        reports=tuple(file_entry(folder, name) for name in reports_of(folder)),
    )


def reports_of(folder: Path) -> tuple[str, ...]:
    """Names of the documents that go into the registry with an artifact: reports, and what running it needs."""
    return (*REPORTS, *published_names(folder))


def _adapted(result: TargetResult) -> dict[str, Any]:
    """What was done to the graph so that the target takes it, with proofs; nothing where nothing was."""
    done = [entry for run in result.stages for entry in run.adapted]
    return {"adapted": done} if done else {}


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
