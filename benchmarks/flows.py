"""What a flow adds to the direct call: in this process, once warm, and through a worker. Seconds of wall clock."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measure import Row

IN_PROCESS = 2.0
THROUGH_A_WORKER = 15.0
ROUNDS = 3
ROOT = Path(__file__).resolve().parent.parent


def rows() -> list[Row]:
    """A conversion that is cached whole, so that what is measured is the flow: direct, as a flow, and by a worker."""
    with tempfile.TemporaryDirectory() as folder, _server(Path(folder)):
        return _measured(Path(folder))


def _measured(folder: Path) -> list[Row]:
    from convert.pipeline import convert_model as direct
    from convert.request import Request
    from convert.settings import load_settings
    from convert.values import LoadOptions
    from flows.convert_model import convert_model

    model = _model(folder / "net.onnx")
    places = {name: str(folder / name) for name in ("registry", "cache_dir", "out")}
    request = Request(load=LoadOptions(path=str(model)), targets=("cpu",))
    direct(request, load_settings(places))
    bare = min(_seconds(lambda: direct(request, load_settings(places))) for _ in range(ROUNDS))
    flow = [_seconds(lambda: convert_model(str(model), ["cpu"], settings=places)) for _ in range(ROUNDS + 1)][1:]
    with _worker(folder):
        worker = [_seconds(lambda: _by_worker(model, places)) for _ in range(ROUNDS)]
    return [
        Row(what="a warm flow adds", ours=max(0.0, min(flow) - bare), base=IN_PROCESS, unit="s", bound=1.0),
        Row(what="a run through a worker adds", ours=min(worker) - bare, base=THROUGH_A_WORKER, unit="s", bound=1.0),
    ]


def _seconds(call: Any) -> float:
    begun = time.monotonic()
    call()
    return time.monotonic() - begun


def _by_worker(model: Path, places: dict[str, str]) -> None:
    from prefect.deployments import run_deployment

    parameters = {"model": str(model), "targets": ["cpu"], "settings": places}
    ended: Any = run_deployment("convert_model/bench", parameters=parameters, poll_interval=0.2, as_subflow=False)
    if not ended.state.is_completed():
        raise SystemExit(f"the run through the worker ended as {ended.state}")


def _model(path: Path) -> Path:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.ones((4, 3), "f4"), "w")],
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@contextlib.contextmanager
def _server(folder: Path) -> Iterator[None]:
    """A Prefect server for this process and its children."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    os.environ.update(
        PREFECT_HOME=str(folder / "prefect"),
        PREFECT_API_URL=f"http://127.0.0.1:{port}/api",
        PREFECT_LOGGING_LEVEL="WARNING",
        PREFECT_SERVER_ANALYTICS_ENABLED="false",
        PREFECT_WORKER_QUERY_SECONDS="1",
        DO_NOT_TRACK="1",
        PYTHONPATH=str(ROOT),
    )
    command = [sys.executable, "-m", "uvicorn", "--factory", "prefect.server.api.server:create_app"]
    with (folder / "server.log").open("wb") as log, _child([*command, "--port", str(port)], log):
        _wait(f"http://127.0.0.1:{port}/api/health", folder / "server.log")
        yield


@contextlib.contextmanager
def _worker(folder: Path) -> Iterator[None]:
    """A worker of the pool ``bench``, warm: it has done one run."""
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="bench", type="process"))
        flow = client.create_flow_from_name("convert_model")
        entrypoint = "flows.convert_model.convert_model"
        client.create_deployment(flow, "bench", entrypoint=entrypoint, work_pool_name="bench", pull_steps=[])
    command = [sys.executable, "-m", "prefect", "worker", "start", "--pool", "bench", "--type", "process"]
    with (folder / "worker.log").open("wb") as log, _child(command, log):
        _by_worker(folder / "net.onnx", {name: str(folder / name) for name in ("registry", "cache_dir", "out")})
        yield


@contextlib.contextmanager
def _child(command: list[str], log: Any) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def _wait(url: str, log: Path) -> None:
    deadline = time.monotonic() + 180
    while True:
        try:
            urllib.request.urlopen(url, timeout=2).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise SystemExit(log.read_text()) from None
            time.sleep(0.2)
