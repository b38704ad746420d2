"""What a user asks for, and what a conversion answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from artifacts.digest import Digest, FileEntry
from convert.exporter_verdict import ExporterVerdict
from convert.ladder import Rung
from convert.values import (
    CalibrationMethod,
    ExportOptions,
    Forecast,
    GateVerdict,
    LoadOptions,
    ModelFile,
    Note,
    Plan,
    Precision,
    Support,
    ValidationReport,
)

Status = Literal["published", "built", "planned", "handoff", "failed"]


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One conversion: a model, its targets and everything that the command line can say."""

    load: LoadOptions
    targets: tuple[str, ...]
    soc: str = ""
    precision: Precision | Literal["", "auto"] = ""
    """Empty: each target's default; ``auto``: the fastest of each target's whose forecast keeps the gate."""
    calibration: CalibrationMethod = "minmax"
    """How int8 ranges are found."""
    export: ExportOptions = ExportOptions()
    simplify: bool = True
    strict: bool = False
    toolchain_version: str = ""
    gate: dict[str, float] = {}
    metrics: tuple[str, ...] = ()
    """``module:callable`` texts of the user's own metrics."""
    argmax: bool = False
    options: dict[str, str] = {}
    preprocess: str = ""
    """``--preprocess``: a canonical JSON object, for compilers that prepare images themselves."""
    gate_on: str = ""
    """A target that judges the graph beforehand, such as a vendor's reference implementation."""
    name: str = ""
    version: str = ""
    out: str = ""
    publish: bool = True
    declared: tuple[str, ...] = ()
    """The targets that the version is to have, where this run makes only some of them; empty: those of the run."""
    use_cache: bool = True
    until: Literal["check", "plan", "publish"] = "publish"
    """``check``: everything before the compiler; ``plan``: and what the compiler would be told."""


class StageRun(msgspec.Struct, frozen=True, kw_only=True):
    """One stage as it went. ``cached``: taken from the cache, and then ``seconds`` is what that took."""

    stage: str
    seconds: float
    cached: bool
    digest: Digest = ""
    parent: Digest = ""
    cpu_seconds: float = 0.0
    peak_rss: int = 0
    notes: tuple[Note, ...] = ()
    adapted: tuple[dict[str, Any], ...] = ()
    """What ``adapt`` did to the graph, with proofs."""
    exporters: tuple[ExporterVerdict, ...] = ()
    """How torch's exporters were judged, where the stage is ``export``."""


class ArtifactInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The artifact's main file, and where it was published."""

    path: str
    sha256: Digest
    bytes: int
    ref: str = ""
    files: tuple[FileEntry, ...] = ()


class TargetResult(msgspec.Struct, frozen=True, kw_only=True):
    """How one target ended."""

    target: str
    soc: str = ""
    backend: str = ""
    precision: str = ""
    status: Status = "failed"
    stages: tuple[StageRun, ...] = ()
    support: Support | None = None
    plan: Plan | None = None
    forecast: Forecast | None = None
    ladder: tuple[Rung, ...] = ()
    """``--precision auto``: every precision of the target, and how it was judged."""
    artifact: ArtifactInfo | None = None
    report: ValidationReport | None = None
    verdict: GateVerdict | None = None
    judged_as: str = ""
    """The precision whose thresholds the gate took."""
    toolchain: dict[str, str] = {}
    folder: str = ""
    """``OUT/NAME/TARGET``: the artifact, ``validation.json``, ``report.html``."""
    handoff: dict[str, Any] | None = None
    """``path``, ``sha256``, ``bytes`` and ``needs`` of the bundle that goes on elsewhere."""
    rehearsal: dict[str, Any] | None = None
    """``--gate-on``: how the target fared that judged the graph beforehand."""
    notes: tuple[Note, ...] = ()
    error: dict[str, Any] | None = None


class Conversion(msgspec.Struct, frozen=True, kw_only=True):
    """How a conversion ended: every target, and the worst error."""

    request: Request
    status: Status
    model: ModelFile | None
    name: str
    version: str = ""
    targets: tuple[TargetResult, ...] = ()
    versions: dict[str, str] = {}
    error: dict[str, Any] | None = None

    @property
    def exit_code(self) -> int:
        """The exit code of the worst target."""
        return int(self.error["exit_code"]) if self.error else 0


WORST_FIRST = (1, 9, 8, 7, 5, 10, 4, 3, 2, 6, 0)
"""The order in which exit codes of several targets weigh; 3 (the model can't be loaded) concerns all alike."""


def status_of(results: Sequence[TargetResult]) -> Status:
    """How a conversion stands: ``handoff`` where nothing but a missing toolchain is in the way."""
    errors = [result for result in results if result.error]
    if errors:
        return "handoff" if all(result.status == "handoff" for result in errors) else "failed"
    there = {result.status for result in results}
    least: tuple[Status, ...] = ("failed", "planned", "built", "published")
    return next((status for status in least if status in there), "failed")


def worst(errors: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The error whose exit code weighs most."""
    return min(errors, key=lambda error: WORST_FIRST.index(error["exit_code"]), default=None)


def as_json(conversion: Conversion) -> dict[str, Any]:
    """The document that ``--json`` prints, schema 1."""
    model = conversion.model
    return {
        "schema": 1,
        "status": conversion.status,
        "name": conversion.name,
        "version": conversion.version or None,
        "model": {
            "path": conversion.request.load.path,
            "format": model.format if model else None,
            "sha256": model.sha256 if model else None,
        },
        "targets": [_target_json(result) for result in conversion.targets],
        "error": conversion.error,
    }


def _target_json(result: TargetResult) -> dict[str, Any]:
    stages = [
        {
            "stage": run.stage,
            "seconds": round(run.seconds, 3),
            "cached": run.cached,
            "peak_rss": run.peak_rss,
            "notes": [msgspec.to_builtins(note) for note in run.notes],
            **({"exporters": exporters_json(run.exporters)} if run.exporters else {}),
        }
        for run in result.stages
    ]
    artifact = result.artifact
    return {
        "target": result.target,
        "soc": result.soc or None,
        "backend": result.backend or None,
        "precision": result.precision or None,
        "status": result.status,
        "stages": stages,
        "support": support_json(result.support),
        "plan": msgspec.to_builtins(result.plan) if result.plan else None,
        "artifact": artifact
        and {"path": artifact.path, "sha256": artifact.sha256, "bytes": artifact.bytes, "ref": artifact.ref or None},
        "forecast": forecast_json(result.forecast),
        "ladder": [msgspec.to_builtins(rung) for rung in result.ladder] or None,
        "validation": validation_json(result),
        "rehearsal": result.rehearsal,
        "folder": result.folder or None,
        "handoff": result.handoff,
        "notes": [msgspec.to_builtins(note) for note in result.notes],
        "error": result.error,
    }


def exporters_json(verdicts: Sequence[ExporterVerdict], *, reasons: bool = True) -> list[dict[str, Any]]:
    """How torch's exporters were judged, as ``--json`` has it; the manifest has it without reasons in words."""
    return [
        {
            "exporter": one.exporter,
            "state": one.state,
            "opset": one.opset,
            **({"reason": one.reason} if reasons else {}),
            "concerns": list(one.concerns),
            "probes": list(one.probes),
        }
        for one in verdicts
    ]


def support_json(support: Support | None) -> dict[str, Any] | None:
    """The judgement of a graph as ``--json`` and the manifest have it."""
    if support is None:
        return None
    judged = [msgspec.to_builtins(one) for one in support.judged]
    refused = [one for one in judged if one["state"] == "refused"]
    return {
        "supported": support.supported,
        "nodes": support.nodes,
        "opset": support.opset,
        "best_opset": support.best_opset or None,
        "toolchain_version": support.toolchain_version or None,
        "unsupported": refused,
        "judged": judged,
    }


def forecast_json(forecast: Forecast | None) -> dict[str, Any] | None:
    """What of a forecast ``--json`` tells; every node of it stands in ``forecast.json``."""
    if forecast is None:
        return None
    return {
        "precision": forecast.precision,
        "holds": forecast.holds,
        "plan_holds": forecast.plan_holds,
        "outputs": [msgspec.to_builtins(output) for output in forecast.planned or forecast.outputs],
        "guilty": [msgspec.to_builtins(node) for node in forecast.guilty[:10]],
        "keep": list(forecast.keep),
        "samples": forecast.samples,
    }


def validation_json(result: TargetResult) -> dict[str, Any] | None:
    """The metrics and the verdict as ``--json`` and the manifest have them."""
    if result.report is None or result.verdict is None:
        return None
    return {
        "passed": result.verdict.passed,
        "judged_as": result.judged_as,
        "ran_on": result.report.ran_on,
        "device": result.report.device,
        "samples": result.report.samples,
        "thresholds": result.verdict.thresholds,
        "failures": list(result.verdict.failures),
        "outputs": [msgspec.to_builtins(output) for output in result.report.outputs],
    }
