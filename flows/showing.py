"""What people see of a run in Prefect: progress, the table, the link to the report; and the event of a regression."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from prefect.artifacts import (
    create_link_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)
from prefect.events import emit_event

from convert.catalog.notify import payload, regressions
from convert.catalog.outcomes import TABLE, table_rows
from convert.catalog.values import Outcome
from convert.stage import Event
from flows.watch import CLIENT_ERRORS

STAGES = ("adapt", "check", "forecast", "compile", "validate")
STEP_SECONDS = 2.0
REGRESSION = "model-convert.regression"


def key_of(*words: str) -> str:
    """A key as Prefect takes it: lower-case letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", "-".join(words).lower()).strip("-")


class Progress:
    """A progress artifact that is written at most every two seconds. Losing it fails nothing."""

    def __init__(self, what: str) -> None:
        self._id: UUID | None = None
        self._told = 0.0
        with contextlib.suppress(*CLIENT_ERRORS):
            self._id = UUID(str(create_progress_artifact(0.0, key=key_of("progress", what), description=what)))

    def tell(self, share: float, *, last: bool = False) -> None:
        """Show a share of 1."""
        if self._id is None or (not last and time.monotonic() - self._told < STEP_SECONDS):
            return
        self._told = time.monotonic()
        with contextlib.suppress(*CLIENT_ERRORS):
            update_progress_artifact(self._id, min(100.0, 100.0 * share))

    def listen(self, event: Event) -> None:
        """A listener of stages."""
        if event.stage in STAGES:
            done = STAGES.index(event.stage) + (event.run is not None)
            self.tell(done / len(STAGES))


def show_table(key: str, outcomes: Sequence[Outcome]) -> None:
    """The table model × target × verdict × change."""
    rows: list[dict[str, Any]] = [dict(zip(TABLE, row, strict=True)) for row in table_rows(outcomes)]
    with contextlib.suppress(*CLIENT_ERRORS):
        create_table_artifact(table=rows, key=key_of(key), description="model × target × verdict × change")


def show_report(outcome: Outcome) -> None:
    """A link to the report page, which lies on the machine that made it, and in the registry with the run's record."""
    if outcome.report:
        with contextlib.suppress(*CLIENT_ERRORS):
            create_link_artifact(
                link=f"file://{outcome.report}",
                link_text=f"{outcome.name}@{outcome.target}",
                key=key_of("report", outcome.name, outcome.target),
                description=f"`artifacts show {outcome.ref}`" if outcome.ref else "not published",
            )


def tell_regressions(outcomes: Sequence[Outcome]) -> None:
    """An event for each pair that got worse: automations can act on ``model-convert.regression``."""
    for outcome in regressions(outcomes):
        resource = {"prefect.resource.id": f"model-convert.model.{outcome.name}", "target": outcome.target}
        with contextlib.suppress(*CLIENT_ERRORS):
            emit_event(REGRESSION, resource=resource, payload=payload(outcome))
