"""A run that watches over itself: it ends when nobody would end it.

Prefect's worker ends a cancelled run with SIGTERM. That fails when the worker itself was killed, and after an outage of
the server, when the worker has stopped listening (measured with 3.9.1). So each run asks every few seconds what the
server thinks of it and whether its parent process is still there, and sends itself the SIGTERM that it would have got.
The main thread then unwinds; the stage host and the compilers' guards end with it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import State, StateType
from prefect.exceptions import PrefectException, TerminationSignal
from prefect.runtime import flow_run
from prefect.states import Cancelled

from flows.values import ALIVE

POLL_SECONDS = 3.0
ALIVE_SECONDS = 15.0
STOP_STATES = (StateType.CANCELLING, StateType.CANCELLED, StateType.CRASHED, StateType.FAILED, StateType.COMPLETED)
"""States in which a run that still works has no business any more: it was cancelled, or given up and started again."""
CLIENT_ERRORS = (httpx.HTTPError, PrefectException, OSError)


class Watch:
    """The thread that watches. ``reason``: why it ended the run; empty where it did not."""

    def __init__(self) -> None:
        self.reason = ""
        self._parent = os.getppid()
        self._run = str(flow_run.id or "")
        self._attempt = int(flow_run.run_count or 0)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def start(self) -> None:
        """Begin, where a worker started this process; a run in somebody's own process is theirs to end."""
        if os.environ.get("PREFECT__FLOW_RUN_ID") and self._run:
            self._thread.start()

    def stop(self) -> None:
        """End the watch."""
        self._over.set()

    def _watch(self) -> None:
        told = 0.0
        with get_client(sync_client=True) as client:
            while not self._over.wait(POLL_SECONDS):
                self.reason = self._fault(client)
                if self.reason:
                    os.kill(os.getpid(), signal.SIGTERM)
                    return
                if time.monotonic() - told > ALIVE_SECONDS:
                    with contextlib.suppress(*CLIENT_ERRORS):
                        client.update_flow_run_labels(self._run, {ALIVE: int(time.time())})  # type: ignore[arg-type]
                        told = time.monotonic()

    def _fault(self, client: SyncPrefectClient) -> str:
        """Why the run must end now. A server that is down is no reason: it may come back before the run is done."""
        if os.getppid() != self._parent:
            return "orphaned"
        try:
            found = client.read_flow_run(self._run)  # type: ignore[arg-type]
        except CLIENT_ERRORS:
            return ""
        if found.state_type in (StateType.CANCELLING, StateType.CANCELLED):
            return "cancelled"
        if found.state_type in STOP_STATES or found.run_count > self._attempt:
            return "given up"
        return ""


_WATCHES: list[Watch] = []


@contextmanager
def watched() -> Iterator[Watch]:
    """A watch over the flow run that this is called in."""
    watch = Watch()
    watch.start()
    _WATCHES.append(watch)
    try:
        yield watch
    finally:
        _WATCHES.remove(watch)
        watch.stop()


def orphaned() -> bool:
    """Whether the run ends because its worker is gone: nobody wanted that, so its children may finish."""
    return any(watch.reason == "orphaned" for watch in _WATCHES)


def ended_by(watch: Watch, error: TerminationSignal) -> State[None]:
    """The state of a run that its watch has cancelled; any other termination is Prefect's to handle."""
    if watch.reason != "cancelled":
        raise error
    return Cancelled(message="cancelled; its compilers are ended")
