"""Runs of other deployments, started, watched and started again: how a parent run gets its targets done elsewhere.

A child that crashed (its process or its worker was killed, its machine is gone) is started again, at most three times
in all; one that failed is not: that is its result. A child that nobody has heard of for a while is given up and started
again; should it live after all, its own watch ends it. Doing a target twice does no harm.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, cast
from uuid import UUID

from prefect.client.orchestration import get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterId
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.deployments import run_deployment
from prefect.exceptions import ObjectNotFound
from prefect.states import Cancelling, Crashed

from flows.values import ALIVE
from flows.watch import CLIENT_ERRORS, orphaned

LOG = logging.getLogger("flows")
ATTEMPTS = 3
POLL_SECONDS = 2.0
SILENT_SECONDS = 90.0
"""A running child writes a sign of life every 15 seconds."""
PENDING_SECONDS = 120.0
"""How long a child may be between a worker's claim and its own start."""
OUTAGE_SECONDS = 600.0
"""How long a server may be away before starting a child fails."""
RETRY_SECONDS = 3.0


class Child:
    """One run of another deployment.

    ``problem``: why there is no result, in words; empty while it runs and when it ended with one.
    """

    def __init__(self, deployment: str, name: str, parameters: dict[str, Any]) -> None:
        self.deployment = deployment
        self.name = name
        self.parameters = parameters
        self.attempt = 0
        self.run: UUID | None = None
        self.problem = ""
        self.last: FlowRun | None = None
        self._since = time.monotonic()

    def start(self, parent: str) -> None:
        """Start it. A server that is away is waited for; starting the same attempt twice gives the same run."""
        self.attempt += 1
        self._since = time.monotonic()
        deadline = time.monotonic() + OUTAGE_SECONDS
        while True:
            try:
                started = run_deployment(
                    self.deployment,
                    parameters=self.parameters,
                    timeout=0,
                    flow_run_name=self.name,
                    idempotency_key=f"{parent}-{self.name}-{self.attempt}",
                    tags=[f"parent:{parent}"],
                )
            except ObjectNotFound:
                self.problem = f"the server has no deployment {self.deployment}"
                return
            except CLIENT_ERRORS as error:
                if time.monotonic() > deadline:
                    self.problem = f"the Prefect server can't be reached: {error}"
                    return
                time.sleep(RETRY_SECONDS)
            else:
                self.run = cast(FlowRun, started).id
                return

    def judge(self, run: FlowRun, parent: str) -> bool:
        """Take in how the run is; true when it ended for good. Starts it again where it crashed or is silent."""
        self.last = run
        kind = run.state_type
        if kind == StateType.CRASHED or (kind is not None and self._silent(run)):
            if kind != StateType.CRASHED:
                give_up(run.id)
            if self.attempt >= ATTEMPTS:
                self.problem = f"it crashed {self.attempt} times; the last: {run.state.message if run.state else ''}"
                return True
            LOG.warning("%s crashed; attempt %d", self.name, self.attempt + 1)
            self.start(parent)
            return bool(self.problem)
        if kind == StateType.CANCELLED:
            self.problem = "cancelled"
        return kind in (StateType.COMPLETED, StateType.FAILED, StateType.CANCELLED)

    def _silent(self, run: FlowRun) -> bool:
        begun = run.state.timestamp.timestamp() if run.state else time.time()
        if run.state_type == StateType.PENDING:
            return time.time() - begun > PENDING_SECONDS
        if run.state_type != StateType.RUNNING:
            return False
        told = run.labels.get(ALIVE)
        heard = max(begun, float(told) if isinstance(told, int | float) else 0.0)
        return time.time() - heard > SILENT_SECONDS


def give_up(run: UUID) -> None:
    """Declare a run crashed. Its own watch, should it live, ends it."""
    with get_client(sync_client=True) as client:
        try:
            client.set_flow_run_state(run, Crashed(message="nothing was heard of it"), force=True)
        except CLIENT_ERRORS as error:
            LOG.warning("run %s can't be given up: %s", run, error)


class Fanout:
    """The children of one parent run."""

    def __init__(self, parent: str) -> None:
        self.parent = parent
        self._open: dict[str, Child] = {}
        self._polled = 0.0

    def __enter__(self) -> Fanout:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """A parent that is cancelled, or fails, cancels its children; one whose worker died lets them finish."""
        if kind is not None and not orphaned():
            self.cancel()

    def add(self, child: Child) -> None:
        """Start a child."""
        child.start(self.parent)
        self._open[child.name] = child

    def poll(self) -> Iterator[Child]:
        """The children that have ended since."""
        self._polled = time.monotonic()
        runs = self._read()
        for child in list(self._open.values()):
            run = runs.get(child.run) if child.run else None
            if child.problem or (run is not None and child.judge(run, self.parent)):
                del self._open[child.name]
                yield child

    def wait(self, ended: Callable[[Child], None], *, seconds: float) -> None:
        """Wait until all have ended or the time is up; then what is open is cancelled."""
        deadline = time.monotonic() + seconds
        while self._open:
            for child in self.poll():
                ended(child)
            if self._open and time.monotonic() > deadline:
                self.cancel()
                for child in self._open.values():
                    child.problem = f"not done within {seconds:.0f} s; is a worker running for its pool?"
                    ended(child)
                self._open.clear()
            if self._open:
                time.sleep(POLL_SECONDS)

    def cancel(self) -> None:
        """Cancel what is open; each run ends its own compilers."""
        for child in self._open.values():
            if child.run is None:
                continue
            with get_client(sync_client=True) as client:
                try:
                    client.set_flow_run_state(child.run, Cancelling())
                except CLIENT_ERRORS as error:
                    LOG.warning("%s can't be cancelled: %s", child.name, error)

    def _read(self) -> dict[UUID, FlowRun]:
        wanted = [child.run for child in self._open.values() if child.run]
        found: dict[UUID, FlowRun] = {}
        try:
            with get_client(sync_client=True) as client:
                for start in range(0, len(wanted), 100):
                    chosen = FlowRunFilter(id=FlowRunFilterId(any_=wanted[start : start + 100]))
                    found.update({run.id: run for run in client.read_flow_runs(flow_run_filter=chosen, limit=200)})
        except CLIENT_ERRORS as error:
            LOG.warning("the Prefect server can't be asked just now: %s", error)
        return found
