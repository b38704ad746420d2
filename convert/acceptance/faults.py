"""Fault injection: one thing goes wrong on purpose, the run ends in a clear error, and the next run works.

killed        the process that runs the artifact is killed in the middle
device-lost   the card is hidden from the runtime
memory        the runtime gets too little memory of this machine
corrupt       the artifact's file is damaged: a byte changed, and cut in half
wrong-input   inputs of another rank, size and type
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from artifacts.errors import ModelConvertError
from convert.acceptance.inject import hiding_variables
from convert.acceptance.opening import check_files
from convert.acceptance.session import Session
from convert.acceptance.values import Fault, FaultResult, FaultState, Job
from convert.errors import EXPECTED
from convert.links import link_or_copy
from convert.values import CompiledArtifact

DONE: dict[Fault, str] = {
    "killed": "the process that ran the artifact was killed in the middle of a run",
    "device-lost": "every card was hidden from the runtime",
    "memory": "the runtime had too little memory of this machine",
    "truncated": "one byte of the artifact's file was changed, then the file was cut in half",
    "wrong-input": "the inputs had another rank, size and type",
}
NAMES: dict[Fault, str] = {"truncated": "corrupt"}


def inject_faults(session: Session, *, tell: Callable[[str], None]) -> tuple[FaultResult, ...]:
    """Every fault, each with a healthy run after it. The session must know the first run's outputs."""
    return tuple(_tried(session, tell))


def _tried(session: Session, tell: Callable[[str], None]) -> Iterator[FaultResult]:
    for fault in DONE:
        tell(f"fault: {NAMES.get(fault, fault)}")
        result = _inject(session, fault)
        if result.state == "not-injected":
            yield result
            continue
        next_run, fine = _next_run(session)
        state = result.state if fine else "failed"
        yield msgspec.structs.replace(result, next_run=next_run, state=state)


def _inject(session: Session, fault: Fault) -> FaultResult:
    job = session.job(runs=session.samples + 1, fault=fault)
    device = session.opened.artifact.target
    if fault == "device-lost" and not hiding_variables(device):
        return _result(fault, "not-injected", f"there is no card to hide: {device} runs on the processor")
    if fault == "truncated":
        return _corrupt(session, job)
    error = _error_of(session, job)
    if error is not None:
        return _result(fault, "handled", error.message, error.code)
    if fault == "device-lost":
        names = ", ".join(hiding_variables(device))
        return _result(fault, "not-injected", f"the runtime did not mind {names}=-1")
    if fault == "memory":
        return _result(fault, "not-injected", "the artifact is so small that it ran in what little memory it had")
    return _result(fault, "failed", "the run ended well, as if nothing had happened")


def _error_of(session: Session, job: Job) -> ModelConvertError | None:
    """The error that a run ends in; a bug of this program passes through."""
    try:
        session.run(job)
    except EXPECTED as error:
        return error if isinstance(error, ModelConvertError) else ModelConvertError(error.code, error.message)
    return None


def _corrupt(session: Session, job: Job) -> FaultResult:
    """A changed byte is what the digest is for; a file that is half there is for the runtime to refuse."""
    fault: Fault = "truncated"
    changed = _copy(session.opened.artifact, session.shop.folder(), _flip)
    try:
        check_files(changed)
    except EXPECTED as error:
        found = error
    else:
        return _result(fault, "failed", "a changed byte was not seen")
    half = _copy(session.opened.artifact, session.shop.folder(), _halve)
    refused = _error_of(session, msgspec.structs.replace(job, artifact=half, fault=""))
    if refused is None:
        return _result(fault, "failed", "the runtime loaded half a file as if it were whole", found.code)
    return _result(fault, "handled", f"{found.message}; half of it, loaded all the same: {refused.message}", found.code)


def _copy(artifact: CompiledArtifact, folder: Path, harm: Callable[[bytes], bytes]) -> CompiledArtifact:
    for entry in artifact.files[1:]:
        link_or_copy(artifact.path(entry.name), folder / entry.name)
    main = folder / artifact.files[0].name
    main.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(artifact.path(artifact.files[0].name), main)
    main.chmod(0o644)
    main.write_bytes(harm(main.read_bytes()))
    return msgspec.structs.replace(artifact, folder=str(folder))


def _flip(data: bytes) -> bytes:
    place = len(data) // 2
    return data[:place] + bytes([data[place] ^ 0xFF]) + data[place + 1 :]


def _halve(data: bytes) -> bytes:
    return data[: len(data) // 2]


def _next_run(session: Session) -> tuple[str, bool]:
    """How a healthy run goes now, and whether it gave the right outputs."""
    try:
        ran = session.run(session.job(runs=session.samples))
    except EXPECTED as error:
        return f"failed: [{error.code}] {error.message}", False
    if ran.broken >= 0:
        return f"other outputs: {'; '.join(ran.failures[:2])}", False
    same = "bit for bit" if ran.equal == ran.runs else "within the gate"
    return f"the outputs of the first run, {same}", True


def _result(fault: Fault, state: FaultState, said: str, code: str = "") -> FaultResult:
    return FaultResult(fault=NAMES.get(fault, fault), done=DONE[fault], state=state, said=said, code=code)
