"""A published artifact measured on its card, on a machine that has the card and nothing of the toolkit.

Artifact, samples and reference outputs come from the registry, and the result goes back to it, attached to the target.
"""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any

import msgspec

from artifacts.device_results import DeviceResult, attach_result
from artifacts.digest import Digest
from artifacts.manifest import Manifest
from artifacts.names import parse_ref, version_tag
from artifacts.registry import Registry
from artifacts.resolve import StoredTarget, choose_target, load_target, resolve
from convert.across.graphs import fetch_graph, graph_tag
from convert.catalog.delivery import machine_key, move_channel
from convert.catalog.records import recipe_of
from convert.catalog.shelf import Shelf, open_shelf
from convert.errors import UsageError
from convert.gate import judge
from convert.host import Limits, StageHost
from convert.links import link_or_copy
from convert.request import TargetResult, validation_json
from convert.settings import Settings, stage_limits
from convert.values import (
    CompiledArtifact,
    GateVerdict,
    OnnxGraph,
    Plan,
    Precision,
    ValidateOptions,
    ValidationReport,
)


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What a card said of a published artifact. ``tag``: the attachment; ``promoted``: what became of that."""

    ref: str
    subject: Digest
    target: str
    passed: bool
    device: str
    validation: dict[str, Any]
    tag: str
    signed: bool
    promoted: str = ""


def measure_on_device(
    registry: str, ref: str, target: str, settings: Settings, *, work: Path, channel: str = ""
) -> Measured:
    """Run a published artifact on this machine's card, judge it, attach the result, and promote where the rules allow.

    Args:
        registry: The folder or ``oci://HOST/PROJECT``.
        ref: The version, as ``NAME`` or ``NAME:VERSION``.
        target: The target of the version.
        settings: Limits.
        work: An empty folder.
        channel: Where the version is to be promoted to; empty: nowhere.

    Raises:
        UsageError: CNV-2355 (what ran was not the card), CNV-2356 (published without a graph to compare with).
        ToolchainMissing: CNV-6002, where nothing here runs such an artifact.
        RegistryError: those of reading and writing.
    """
    parsed = parse_ref(ref)
    with open_shelf(registry, parsed.name) as shelf:
        if parsed.tag:
            shelf.fetch_tag(parsed.tag)
        layout, resolved = resolve(Registry(shelf.root), parsed)
        stored = load_target(layout, choose_target(layout, resolved, target=target))
        shelf.fetch_attached(stored.descriptor.digest)
        artifact = _artifact(shelf, stored, work / "artifact")
        graph = _graph(shelf, stored.manifest, work / "graph")
        report = _measure(graph, artifact, settings, work)
        verdict, validation = _judged(stored.manifest, report)
        result = DeviceResult(
            subject=stored.descriptor.digest,
            passed=verdict.passed,
            device=report.device,
            validation=validation,
            machine={"system": platform.platform(), "processor": platform.machine(), "host": platform.node()},
            measured=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        )
        key = machine_key()
        tag = attach_result(layout, stored.descriptor, result, key)
        shelf.send([tag])
        promoted = ""
        if channel and verdict.passed and resolved.version:
            promoted = move_channel(shelf, resolved.version, channel, reason=f"{target} passed on {report.device}")
        return Measured(
            ref=f"{parsed.name}:{version_tag(resolved.version)}" if resolved.version else ref,
            subject=stored.descriptor.digest,
            target=stored.manifest.target,
            passed=verdict.passed,
            device=report.device,
            validation=validation,
            tag=tag,
            signed=key is not None,
            promoted=promoted,
        )


def _artifact(shelf: Shelf, stored: StoredTarget, folder: Path) -> CompiledArtifact:
    manifest = stored.manifest
    layers = {layer.title: layer for layer in stored.image.layers}
    shelf.fetch_blobs([layers[entry.name] for entry in manifest.files])
    for entry in manifest.files:
        link_or_copy(shelf.layout.blob_path(entry.sha256), folder / entry.name)
    recipe = recipe_of(shelf.layout, shelf.layout.refs(), stored.descriptor)
    bare = Plan(backend=manifest.backend, argv=manifest.plan, output=manifest.files[0].name)
    parent = next((link.parent for link in manifest.chain if link.stage == "compile"), manifest.model.sha256)
    return CompiledArtifact(
        parent=parent,
        target=manifest.target,
        soc=manifest.soc,
        backend=manifest.backend,
        precision=msgspec.convert(manifest.precision, Precision),
        plan=(recipe.plan if recipe is not None else None) or bare,
        toolchain=manifest.toolchain,
        files=manifest.files,
        folder=str(folder),
    )


def _graph(shelf: Shelf, manifest: Manifest, folder: Path) -> OnnxGraph:
    """The graph that the artifact was made of, without its weights."""
    for link in reversed(manifest.chain):
        if link.stage in ("simplify", "export"):
            tag = graph_tag(link.digest)
            shelf.fetch_tag(tag)
            if shelf.layout.find(tag) is not None:
                return fetch_graph(shelf, tag, folder, weights=False).graph
    raise UsageError(
        "CNV-2356",
        f"{shelf.name} has no graph of this artifact in the registry, so there is nothing to compare with",
        hint="only versions that flows made bring samples and reference outputs along; convert it with a flow",
    )


def _measure(graph: OnnxGraph, artifact: CompiledArtifact, settings: Settings, work: Path) -> ValidationReport:
    folder = work / "validate"
    folder.mkdir(parents=True)
    options = ValidateOptions(argmax=False)
    with StageHost(work / "workers.log") as host, host.worker() as worker:
        answer = worker.call(
            "convert.stages.validate:validate_artifact",
            graph,
            artifact,
            options,
            str(folder),
            limits=Limits(**stage_limits(settings)),
        )
    report = msgspec.json.decode(answer.value, type=ValidationReport)
    if report.ran_on != "device":
        raise UsageError(
            "CNV-2355",
            f"the artifact for {artifact.target} ran on the {report.ran_on} of {os.uname().nodename}, not on the card",
            hint="run this on a worker with the card: the pool card-<target>",
        )
    return report


def _judged(manifest: Manifest, report: ValidationReport) -> tuple[GateVerdict, dict[str, Any]]:
    """The verdict by the thresholds that the artifact was published with."""
    validation = manifest.validation
    judged_as = msgspec.convert(validation.get("judged_as") or manifest.precision, Precision)
    thresholds = msgspec.convert(validation.get("thresholds") or {}, dict[str, float])
    verdict = judge(report, judged_as, thresholds)
    result = TargetResult(target=manifest.target, report=report, verdict=verdict, judged_as=judged_as)
    told = validation_json(result) or {}
    return verdict, msgspec.json.decode(msgspec.json.encode(told), type=dict[str, Any])
