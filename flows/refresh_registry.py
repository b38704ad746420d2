"""The flow ``refresh_registry``: what keeps the registry and the picture of the pools fresh, once a night.

Every blob is read and checked, what nothing refers to is swept, graphs that no version needs any more are dropped, and
the toolchains of this worker's machine are told, so that catalogues notice an upgrade.
"""

from __future__ import annotations

from typing import Any

from prefect import flow, task  # isort: skip
from prefect.artifacts import create_table_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State
from prefect.exceptions import TerminationSignal
from prefect.states import Completed, Failed

from artifacts.fsck import fsck
from artifacts.gc import collect
from artifacts.registry import Registry, root_of
from convert.across.graphs import drop_stale_graphs
from convert.backends import backend_names
from convert.settings import Settings, load_settings
from flows.pools import tell_toolchain, toolchain_here
from flows.watch import ended_by, watched


@task(name="check", cache_policy=NO_CACHE, persist_result=False)
def check(settings: Settings) -> list[dict[str, Any]]:
    """Every reference walked, every blob hashed; one row for each model."""
    root = root_of(settings.registry)
    if root is None:
        return []
    return [
        {"model": model.name, "refs": model.refs, "damage": "; ".join(item.what for item in model.damage) or "none"}
        for model in fsck(root).models
    ]


@task(name="sweep", cache_policy=NO_CACHE, persist_result=False)
def sweep(settings: Settings, apply: bool) -> str:
    """What nothing refers to: removed with ``apply``, else told."""
    root = root_of(settings.registry)
    if root is None:
        return "the registry is elsewhere; its own garbage collection sweeps it"
    dropped = [tag for name in Registry(root).models() for tag in drop_stale_graphs(root, name, apply=apply)]
    report = collect(root, apply=apply, actor="refresh_registry")
    files = sum(len(model.swept) for model in report.models)
    return f"{files} files and {len(dropped)} graphs {'removed' if apply else 'would go'}"


@task(name="toolchains", cache_policy=NO_CACHE, persist_result=False)
def toolchains() -> dict[str, str]:
    """The toolchains of this machine, told to whoever plans."""
    found = {name: toolchain for name in backend_names() if (toolchain := toolchain_here(name))}
    for name, toolchain in found.items():
        tell_toolchain(name, toolchain)
    return found


@flow(name="refresh_registry", persist_result=False)
def refresh_registry(settings: dict[str, Any] | None = None, apply: bool = False, maintain: bool = True) -> State[Any]:
    """Check and sweep the registry, and tell which toolchains this machine has.

    Args:
        settings: Settings by name, over those of the worker's machine.
        apply: Remove what nothing refers to any more.
        maintain: Check and sweep; without it only the toolchains are told.
    """
    used = load_settings(settings or {})
    with watched() as watch:
        try:
            here = toolchains()
            rows = check(used) if maintain else []
            swept = sweep(used, apply) if maintain else ""
        except TerminationSignal as error:
            return ended_by(watch, error)
    if rows:
        create_table_artifact(table=rows, key="registry", description="every blob read and checked")
    damaged = [row["model"] for row in rows if row["damage"] != "none"]
    told = ", ".join(f"{name}: {toolchain}" for name, toolchain in here.items())
    if damaged:
        return Failed(message=f"damaged: {', '.join(damaged)}; `artifacts fsck` tells what. {swept}")
    return Completed(message=f"{len(rows)} models sound. {swept}. Toolchains here: {told}")
