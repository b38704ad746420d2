"""READ FIRST: what flows hand each other: small values, digests and tags; never data."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from convert.catalog.values import Outcome, Pair, Recipe

# A flow must never start a server of its own behind the user's back (it takes most of a minute and leaves a database).
os.environ.setdefault("PREFECT_SERVER_ALLOW_EPHEMERAL_MODE", "false")

OUTCOME = "model-convert.outcome"
"""The label of a flow run that holds its outcome as JSON: states keep no result between processes."""
ALIVE = "model-convert.alive"
"""The label that a run writes as long as it lives: seconds since the epoch."""
SETTINGS = ("registry", "cache_dir", "out", "timeout", "memory", "soc", "launcher", "compilers", "jobs")


class TargetJob(msgspec.Struct, frozen=True, kw_only=True):
    """One target to convert: the pair with its recipe, and the graph to convert, by its tag in the registry."""

    pair: Pair
    recipe: Recipe
    why: str
    graph: str
    version: str
    """The version that the target is delivered for."""
    published: str = ""

    @property
    def pool(self) -> str:
        """The work pool, and the deployment of ``convert_target``: the backend's name."""
        return self.pair.backend


def card_pool(target: str) -> str:
    """The work pool of machines that have a card."""
    return f"card-{target.lower()}"


def as_parameter(value: Any) -> dict[str, Any]:
    """A value as a flow's parameter, which is JSON."""
    found = msgspec.to_builtins(value)
    return {str(key): item for key, item in found.items()}


def job_of(parameter: dict[str, Any]) -> TargetJob:
    """The job that a parameter holds."""
    return msgspec.convert(parameter, TargetJob)


def outcome_of(labels: dict[str, Any]) -> Outcome | None:
    """The outcome that a run has left in its labels."""
    text = labels.get(OUTCOME)
    return msgspec.json.decode(text, type=Outcome) if isinstance(text, str) else None
