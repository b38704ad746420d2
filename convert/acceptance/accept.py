"""``convert accept``: precision, stress, faults; one report that a site can sign off on."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable
from typing import Any

import msgspec

from artifacts.errors import ModelConvertError
from convert.acceptance.bench import differs, timed, unsteady
from convert.acceptance.faults import inject_faults
from convert.acceptance.session import Session
from convert.acceptance.soak import soak_artifact
from convert.acceptance.values import Acceptance, Accuracy, FaultResult, Opened, Soak, StageResult
from convert.errors import EXPECTED, GateFailed
from convert.installed import installed
from convert.values import Note

LIBRARIES = ("model_convert", "numpy", "onnxruntime", "onnxruntime_gpu", "onnxruntime_maca")
RAN_ON = {
    "device": "on the target's own runtime",
    "simulator": "on the vendor's simulator: the card itself has not spoken",
    "host": "on this machine's processor: the card itself has not spoken",
}


class AcceptOptions(msgspec.Struct, frozen=True, kw_only=True):
    """``seconds`` and ``stress_runs`` bound the stress stage (0: no bound by runs); ``workers`` run it at once."""

    seconds: float = 600.0
    stress_runs: int = 0
    workers: int = 2
    runs: int = 100
    warmup: int = 5


def accept_artifact(session: Session, options: AcceptOptions, tell: Callable[[str], None]) -> Acceptance:
    """All three stages; what fails stands in the report.

    Raises :class:`ToolchainMissing` CNV-6002 where nothing here can run the artifact: there is nothing to report then.
    """
    report = _head(session.opened)
    try:
        report = _precision(report, session, tell)
    except EXPECTED as error:
        if error.code == "CNV-6002":
            raise
        stages = (_broken("precision", error), _skipped("stress"), _skipped("faults"))
        return _finished(msgspec.structs.replace(report, stages=stages))
    report = _stress(report, session, options, tell)
    report = _faults(report, session, tell)
    return _finished(report)


def _head(opened: Opened) -> Acceptance:
    artifact = opened.artifact
    main = artifact.files[0]
    return Acceptance(
        name=opened.name,
        target=artifact.target,
        soc=artifact.soc,
        backend=artifact.backend,
        precision=artifact.precision,
        ref=opened.ref,
        main=main.name,
        sha256=main.sha256,
        bytes=main.bytes,
        passed=False,
        stages=(),
        notes=opened.notes,
    )


def _precision(report: Acceptance, session: Session, tell: Callable[[str], None]) -> Acceptance:
    tell("precision: every sample against its reference outputs")
    accuracy = session.accuracy()
    return msgspec.structs.replace(
        report,
        stages=(precision_stage(accuracy, report.name),),
        accuracy=accuracy,
        ran_on=accuracy.ran_on,
        device=accuracy.device,
        notes=(*report.notes, *accuracy.notes),
    )


def precision_stage(accuracy: Accuracy, name: str) -> StageResult:
    """What the outputs of the first run are worth."""
    where = RAN_ON.get(accuracy.ran_on, accuracy.ran_on)
    if accuracy.verdict is None:
        said = f"there are no reference outputs to compare with ({accuracy.sampled} inputs), {where}"
        return StageResult(stage="precision", state="not-judged", said=said)
    outputs = f"{len(accuracy.outputs)} output{'' if len(accuracy.outputs) == 1 else 's'}"
    samples = f"{accuracy.samples} {accuracy.sampled} sample{'' if accuracy.samples == 1 else 's'}"
    error = differs(accuracy, name)
    if error is not None:
        return _broken("precision", error)
    return StageResult(stage="precision", state="passed", said=f"{outputs} of {samples} keep the gate, {where}")


def _stress(report: Acceptance, session: Session, options: AcceptOptions, tell: Callable[[str], None]) -> Acceptance:
    accuracy = report.accuracy
    assert accuracy is not None
    tell(f"stress: {options.runs} runs to time, then {options.workers} at once for {options.seconds:.0f} s")
    try:
        speed = timed(session, runs=options.runs, warmup=options.warmup)
        report = msgspec.structs.replace(report, speed=speed)
        soak = soak_artifact(
            session,
            accuracy,
            seconds=options.seconds,
            runs=options.stress_runs,
            workers=options.workers,
            tell=lambda text: tell(f"stress: {text}"),
        )
    except EXPECTED as error:
        return _with(report, _broken("stress", error))
    stage = (
        StageResult(stage="stress", state="passed", said=soak_sentence(soak))
        if soak.passed
        else _broken("stress", unsteady(soak.broken, soak.failures))
    )
    return msgspec.structs.replace(_with(report, stage), soak=soak)


def soak_sentence(soak: Soak) -> str:
    """What a soak showed, in words."""
    at_once = f", {soak.workers} at once" if soak.workers > 1 else ""
    same = "all of them" if soak.equal == soak.runs else f"{soak.equal} of them"
    others = "" if soak.equal == soak.runs else ", the others within the gate"
    return f"{soak.runs} runs in {soak.seconds:.0f} s{at_once}: {same} bit for bit the first{others}"


def _faults(report: Acceptance, session: Session, tell: Callable[[str], None]) -> Acceptance:
    found = inject_faults(session, tell=tell)
    return msgspec.structs.replace(_with(report, faults_stage(found)), faults=found)


def faults_stage(found: tuple[FaultResult, ...]) -> StageResult:
    """What the faults showed: each that could be injected must end in an error, and the next run must work."""
    bad = [one for one in found if one.state == "failed"]
    injected = [one for one in found if one.state != "not-injected"]
    left = [one.fault for one in found if one.state == "not-injected"]
    beside = f"; could not be injected here: {', '.join(left)}" if left else ""
    if bad:
        error = GateFailed(
            "CNV-8125",
            "; ".join(f"{one.fault}: {one.said}, next run: {one.next_run or 'not tried'}" for one in bad),
            hint="a fault must end in an error, and the run after it must give the right outputs: tell whoever made the"
            " runtime, and keep this report",
        )
        return _broken("faults", error)
    said = f"{len(injected)} of {len(found)} faults: each ended in an error, and the next run was right{beside}"
    return StageResult(stage="faults", state="passed", said=said)


def _broken(stage: Any, error: Any) -> StageResult:
    told = error.as_json() if isinstance(error, ModelConvertError) else {"code": error.code, "message": str(error)}
    return StageResult(stage=stage, state="failed", said=f"[{error.code}] {error.message}", error=told)


def _skipped(stage: Any) -> StageResult:
    return StageResult(stage=stage, state="skipped", said="the stage before it failed")


def _with(report: Acceptance, stage: StageResult) -> Acceptance:
    return msgspec.structs.replace(report, stages=(*report.stages, stage))


def _finished(report: Acceptance) -> Acceptance:
    notes = report.notes
    if report.ran_on not in ("device", None):
        text = f"this was {RAN_ON.get(str(report.ran_on), report.ran_on)}"
        notes = (*notes, Note(level="warning", text=text))
    here = installed()
    return msgspec.structs.replace(
        report,
        passed=all(stage.state == "passed" for stage in report.stages),
        notes=notes,
        machine={
            "system": platform.platform(),
            "processor": platform.machine(),
            "host": platform.node(),
            "cores": len(os.sched_getaffinity(0)),
        },
        versions={name: here[name] for name in LIBRARIES if name in here},
        finished=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )


def rejected(report: Acceptance) -> GateFailed | None:
    """The error of an acceptance that did not pass; None where it did."""
    if report.passed:
        return None
    open_stages = [f"{stage.stage} {stage.state}: {stage.said}" for stage in report.stages if stage.state != "passed"]
    return GateFailed(
        "CNV-8126",
        f"{report.name} for {report.target} is not accepted: {'; '.join(open_stages)}",
        hint="the report has each stage; a precision that was not judged needs samples with reference outputs:"
        " --samples samples.zip, from the folder of the conversion",
    )
