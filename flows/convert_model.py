"""The flow ``convert_model``: one model, converted by the same call that the command line makes.

The task is called directly, in the flow's main thread, so that a cancelled run unwinds through it and its workers end.
Results are plain values (digests and paths); the data itself goes through the stage cache and the registry.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

# A flow must never start a server of its own behind the user's back (it takes most of a minute and leaves a database).
os.environ.setdefault("PREFECT_SERVER_ALLOW_EPHEMERAL_MODE", "false")

from prefect import flow, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.states import Completed, Failed

from convert.gate import parse_gate
from convert.pipeline import convert_model as convert
from convert.request import Request, as_json
from convert.settings import load_settings
from convert.values import ExportOptions, LoadOptions


@task(name="convert", cache_policy=NO_CACHE, task_run_name="{request[load][path]}")
def convert_task(request: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """Run one request and give the document that ``convert --json`` prints."""
    import msgspec

    return as_json(convert(msgspec.convert(request, Request), load_settings(settings)))


@flow(name="convert_model", flow_run_name="{model}", persist_result=False)
def convert_model(
    model: str,
    targets: list[str],
    precision: str = "",
    inputs: list[str] | None = None,
    gate: list[str] | None = None,
    name: str = "",
    version: str = "",
    settings: dict[str, Any] | None = None,
) -> State[Any]:
    """Convert a model for its targets and publish what passed.

    Args:
        model: Path of the model file on the worker's machine.
        targets: Cards or SoCs.
        precision: Empty for each target's default.
        inputs: Texts of ``--input``.
        gate: Texts of ``--gate``.
        name: The model's name in the registry; empty for the file's.
        version: The version to publish; empty for the next patch.
        settings: Settings by name, over the worker's environment.
    """
    import msgspec

    request = Request(
        load=LoadOptions(path=str(Path(model).absolute()), inputs=tuple(inputs or ())),
        targets=tuple(targets),
        precision=msgspec.convert(precision, type=Any),
        export=ExportOptions(),
        gate=parse_gate(gate or []),
        name=name,
        version=version,
    )
    document = convert_task(msgspec.to_builtins(request), settings or {})
    error = document["error"]
    if error:
        return Failed(message=f"[{error['code']}] {error['message']}", data=document)
    return Completed(message=f"{document['name']}:{document['version']} {document['status']}", data=document)
