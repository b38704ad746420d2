"""The flow ``validate_on_device``: a published artifact measured on its card, on a worker that has the card.

Its result is attached to the artifact, signed where the worker has a key (``CONVERT_SIGN_KEY``), and the version is
promoted where the channel's rules allow it. Data passes through the registry alone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from prefect import flow, task  # isort: skip
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Completed, Failed

from artifacts.names import parse_ref
from artifacts.scratch import temporary_folder
from convert.across.devices import Measured, measure_on_device
from convert.catalog.values import Outcome
from convert.errors import EXPECTED
from convert.settings import Settings, load_settings
from flows.convert_target import RETRY, leave
from flows.faults import TransientFault, raise_transient
from flows.watch import ended_by, watched


@task(name="measure", **RETRY)
def measure(ref: str, target: str, channel: str, settings: Settings) -> Measured:
    """Artifact, samples and reference outputs from the registry; run, compared, judged; the result back to it."""
    try:
        with temporary_folder("model-convert") as work:
            return measure_on_device(settings.registry, ref, target, settings, work=Path(work), channel=channel)
    except EXPECTED as error:
        raise_transient(error.as_json())
        raise


@flow(name="validate_on_device", flow_run_name="{ref}@{target} on device", persist_result=False)
def validate_on_device(ref: str, target: str, channel: str = "", settings: dict[str, Any] | None = None) -> State[Any]:
    """Measure a published artifact on this worker's card.

    Args:
        ref: The version, as ``NAME`` or ``NAME:VERSION``.
        target: The target of the version.
        channel: Where the version is promoted to if it passes and the channel's rules allow it; empty: nowhere.
        settings: Settings by name, over those of the worker's machine.
    """
    with watched() as watch:
        try:
            outcome = _outcome(ref, target, channel, load_settings(settings or {}))
        except TerminationSignal as error:
            return ended_by(watch, error)
    leave(outcome)
    if outcome.error:
        return Failed(message=f"[{outcome.error['code']}] {outcome.error['message']}")
    return Completed(message=f"{ref} {target}: {outcome.verdict}; {outcome.change}")


def _outcome(ref: str, target: str, channel: str, settings: Settings) -> Outcome:
    bare = Outcome(name=parse_ref(ref).name, target=target, status="published", ref=ref)
    try:
        measured = measure(ref, target, channel, settings)
    except EXPECTED as error:
        return msgspec.structs.replace(bare, status="failed", error=error.as_json(), change="not measured")
    except TransientFault as fault:
        return msgspec.structs.replace(bare, status="failed", error=fault.error, change="not measured")
    change = f"measured on {measured.device}" + (f", {measured.promoted}" if measured.promoted else "")
    done = msgspec.structs.replace(bare, ref=measured.ref, digest=measured.subject, change=change)
    if measured.passed:
        return msgspec.structs.replace(done, verdict="passed on device")
    failures = "; ".join(measured.validation.get("failures", []))
    lost = {
        "code": "CNV-8001",
        "message": f"{measured.ref} for {measured.target} differs on {measured.device}: {failures}",
        "hint": "the result is attached to the artifact; channels that ask for a device refuse it",
        "exit_code": 8,
    }
    regression = "its gate passed where it was compiled, and fails on the card"
    return msgspec.structs.replace(done, status="failed", verdict="failed on device", error=lost, regression=regression)
