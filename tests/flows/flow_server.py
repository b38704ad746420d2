"""One Prefect server for all tests that need one, whichever of pytest's processes they run in: its fixtures."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from flow_kit import Server, copy_template, template


@pytest.fixture(scope="session")
def prefect_template() -> Path:
    """A home with a migrated database; kept between sessions of this machine."""
    folder = Path(tempfile.gettempdir()) / f"model-convert-tests-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    with (folder / "template.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return template(folder)


_STARTED: list[Server] = []
"""The server that this process started; kept, since another one may be the last to use it."""


@pytest.fixture(scope="session")
def prefect_url(tmp_path_factory: pytest.TempPathFactory, prefect_template: Path) -> Iterator[str]:
    """The session's server. The first process that needs it starts it, the last one that used it ends it."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if os.environ.get("PYTEST_XDIST_WORKER") else shared
    state = shared / "prefect-server.json"
    with _locked(shared):
        told = json.loads(state.read_text()) if state.exists() else None
        if told is None:
            home = shared / "prefect-server"
            copy_template(prefect_template, home)
            server = Server(home)
            server.start()
            _STARTED.append(server)
            assert server.process is not None
            told = {"url": server.url, "pid": server.process.pid, "users": 0}
        told["users"] += 1
        state.write_text(json.dumps(told))
    yield str(told["url"])
    with _locked(shared):
        told = json.loads(state.read_text())
        told["users"] -= 1
        state.write_text(json.dumps(told))
        if not told["users"]:
            state.unlink()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(told["pid"], signal.SIGTERM)
            for server in _STARTED:
                server.stop()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "prefect-server.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def client_of(url: str, home: Path) -> Iterator[None]:
    """This process as a client of a server."""
    # ERROR: what Prefect warns of at the end of a process, when the server is gone already, is of no interest.
    os.environ.update(DO_NOT_TRACK="1", PREFECT_LOGGING_LEVEL="ERROR")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from prefect.settings import PREFECT_API_URL, PREFECT_HOME, temporary_settings

        import flows.values  # noqa: F401

        with temporary_settings({PREFECT_API_URL: url, PREFECT_HOME: str(home)}):
            yield


@pytest.fixture
def server(prefect_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The session's server, which flows of this process talk to; gives its address."""
    with client_of(prefect_url, tmp_path_factory.mktemp("prefect-client")):
        yield prefect_url
