"""A Prefect server, workers and deployments as separate processes, and small models to convert."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
QUIET = {
    "DO_NOT_TRACK": "1",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_LOGGING_LEVEL": "WARNING",
    "PREFECT_SERVER_UI_ENABLED": "false",
    "PREFECT_CLI_COLORS": "false",
    "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
    "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
    "PREFECT_WORKER_QUERY_SECONDS": "1",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_SERVER_DATABASE_TIMEOUT": "60",
    "PREFECT_SERVER_DATABASE_CONNECTION_TIMEOUT": "60",
}
DATABASES = ("prefect.db", "prefect.db-wal", "prefect.db-shm")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for(what: Callable[[], Any], *, seconds: float = 120.0, every: float = 0.3, told: str = "it") -> Any:
    deadline = time.monotonic() + seconds
    while True:
        found = what()
        if found:
            return found
        assert time.monotonic() < deadline, f"{told} did not come within {seconds:.0f} s"
        time.sleep(every)


def environment(home: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PREFECT_", "CONVERT_"))}
    return {**kept, **QUIET, "PYTHONPATH": str(ROOT), "PREFECT_HOME": str(home), "HOME": str(home), **more}


class Server:
    """A Prefect server; ``database`` is a connection URL, or empty for SQLite in its home."""

    def __init__(self, home: Path, database: str = "") -> None:
        self.home = home
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/api"
        self.database = database
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        more = {"PREFECT_API_URL": self.url, "PREFECT_SERVER_SERVICES_SCHEDULER_LOOP_SECONDS": "5"}
        if self.database:
            more["PREFECT_SERVER_DATABASE_CONNECTION_URL"] = self.database
        command = [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--log-level", "warning"]
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=environment(self.home, **more),
                cwd=self.home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_for(self._answers, seconds=300, told="the Prefect server")

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.home / "server.log").read_text()[-3000:]
        try:
            urllib.request.urlopen(f"{self.url}/health", timeout=2).close()
        except OSError:
            return False
        return True

    def stop(self) -> None:
        if self.process is not None:
            end(self.process)
            self.process = None

    def restart(self, *, away: float = 0.0) -> None:
        self.stop()
        time.sleep(away)
        self.start()


def end(process: subprocess.Popen[bytes], *, seconds: float = 10.0) -> None:
    """SIGTERM for the process, then SIGKILL for its session."""
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Worker:
    """A Prefect worker of one pool, in a session and an environment of its own."""

    def __init__(self, server: Server, pool: str, home: Path, *, limit: int = 1, **more: str) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        places = {
            "CONVERT_CACHE_DIR": str(home / "cache"),
            "CONVERT_OUT": str(home / "out"),
            "PREFECT_API_URL": server.url,
            "TMPDIR": str(home),
        }
        self.log = home / "worker.log"
        command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", pool, "--type", "process"]
        command += ["--limit", str(limit), "--name", home.name]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                env=environment(home, **{**places, **more}),
                cwd=home,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL for the worker alone: its runs live on, until they notice."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        end(self.process, seconds=15.0)


def processes_with(text: str) -> list[int]:
    """The processes whose command line or environment holds a text, this one aside."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            whole = (entry / "cmdline").read_bytes() + b"\0" + (entry / "environ").read_bytes()
            if text.encode() in whole:
                found.append(int(entry.name))
    return found


def template(folder: Path) -> Path:
    """A home with a migrated database, made once on this machine for each version of Prefect: it saves 12 s."""
    import importlib.metadata

    home = folder / f"prefect-{importlib.metadata.version('prefect')}-{os.getuid()}"
    done = home / "done"
    if not done.exists():
        fresh = Server(folder / f"making-{os.getpid()}")
        fresh.start()
        fresh.stop()
        home.mkdir(parents=True, exist_ok=True)
        for name in DATABASES:
            if (fresh.home / name).exists():
                shutil.copyfile(fresh.home / name, home / f"{name}.{os.getpid()}")
                (home / f"{name}.{os.getpid()}").replace(home / name)
        shutil.rmtree(fresh.home, ignore_errors=True)
        done.touch()
    return home


def copy_template(source: Path, home: Path) -> None:
    home.mkdir(parents=True, exist_ok=True)
    for name in DATABASES:
        if (source / name).exists():
            shutil.copyfile(source / name, home / name)


DEPLOYED = {
    "convert_target": "flows.convert_target.convert_target",
    "convert_catalog": "flows.convert_catalog.convert_catalog",
    "validate_on_device": "flows.validate_on_device.validate_on_device",
}


def deploy(flow: str, name: str, pool: str, **fields: Any) -> str:
    """Create a pool and a deployment of one of our flows, as ``prefect deploy`` does; gives its id."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    with get_client(sync_client=True) as client:
        with contextlib.suppress(ObjectAlreadyExists):
            client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
        flow_id = client.create_flow_from_name(flow)
        made = client.create_deployment(
            flow_id, name, entrypoint=DEPLOYED[flow], work_pool_name=pool, pull_steps=[], **fields
        )
        return str(made)


@contextlib.contextmanager
def running(*workers: Worker) -> Iterator[None]:
    try:
        yield
    finally:
        for worker in workers:
            worker.stop()


def make_model(path: Path, seed: int, *, bad: bool = False) -> Path:
    """A tiny ONNX model; a ``bad`` one has an operator that nothing knows."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    weight = np.random.default_rng(seed).standard_normal((4, 3)).astype("f4")
    last = helper.make_node("Unheard" if bad else "Relu", ["h"], ["y"], name="last", domain="odd" if bad else "")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"], name="product"), last],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(weight, "w")],
    )
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid("odd", 1)] if bad else [])]
    path.parent.mkdir(parents=True, exist_ok=True)
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path
