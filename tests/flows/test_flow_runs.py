"""Flows through workers: a catalogue whose workers and server are killed, cancelling, schedules, PostgreSQL."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from flow_kit import (
    ROOT,
    Server,
    Worker,
    copy_template,
    deploy,
    environment,
    free_port,
    make_model,
    processes_with,
    running,
    wait_for,
)
from flow_server import client_of

sys.path.insert(0, str(ROOT / "tests" / "doubles" / "atc"))
from install import install_cann

pytestmark = [pytest.mark.timeout(900), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _the_catalogue_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CONVERT_REGISTRY", "CONVERT_CACHE_DIR", "CONVERT_OUT"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def catalogue(folder: Path, *, models: int, targets: str = '["cpu", "C500"]', head: str = "") -> Path:
    for number in range(models):
        make_model(folder / f"models/net{number}.onnx", number)
    file = folder / "convert.toml"
    file.write_text(
        f'[settings]\nregistry = "{folder}/registry"\ncache_dir = "{folder}/cache"\nout = "{folder}/out"\n'
        f'[catalog]\ntargets = {targets}\n{head}\n[[model]]\nglob = "models/*.onnx"\n'
    )
    return file


def versions(folder: Path) -> dict[str, list[tuple[str, ...]]]:
    """The targets of every version of every model."""
    from artifacts.listing import list_models
    from artifacts.registry import Registry

    listed = list_models(Registry(folder / "registry"))
    assert not any(model.drafts or model.problem for model in listed), listed
    return {model.name: [version.targets for version in model.versions] for model in listed}


def run_catalog(file: Path, **more: Any) -> tuple[Any, float]:
    from flows.convert_catalog import convert_catalog

    begun = time.monotonic()
    state = convert_catalog(str(file), return_state=True, **more)
    return state, time.monotonic() - begun


def kill_and_restart(folder: Path, server: Server, workers: list[Worker], pool: str) -> None:
    """In the middle of a catalogue: SIGKILL for a worker, then the server away for some seconds, then a new worker."""
    delivered = lambda: len(list((folder / "registry").glob("*/index.json"))) >= 2  # noqa: E731
    wait_for(delivered, seconds=300, told="the first models")
    wait_for(lambda: processes_with("convert.worker"), seconds=120, told="a conversion in a worker")
    workers[0].kill()
    server.restart(away=2.0)
    workers.append(Worker(server, pool, folder / f"worker-{len(workers)}"))


def survive(folder: Path, template: Path, *, models: int, workers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pairs done, none lost, none published twice; a second run does nothing in a twentieth of the time."""
    import flows.fanout

    monkeypatch.setattr(flows.fanout, "PENDING_SECONDS", 60.0)
    monkeypatch.setattr(flows.fanout, "SILENT_SECONDS", 60.0)
    copy_template(template, folder / "server")
    server = Server(folder / "server")
    server.start()
    file = catalogue(folder, models=models)
    try:
        with client_of(server.url, folder / "client"):
            deploy("convert_target", "onnxruntime", "onnxruntime")
            started = [Worker(server, "onnxruntime", folder / f"worker-{n}") for n in range(workers)]
            trouble = threading.Thread(target=kill_and_restart, args=(folder, server, started, "onnxruntime"))
            trouble.start()
            try:
                first, took = run_catalog(file)
                trouble.join()
                second, again = run_catalog(file)
            finally:
                trouble.join()
                for worker in started:
                    worker.stop()
    finally:
        server.stop()
    assert first.message == f"{2 * models} published"
    assert second.message == f"{2 * models} unchanged"
    assert versions(folder) == {f"net{number}": [("c500", "cpu")] for number in range(models)}
    assert again <= 0.05 * took
    wait_for(lambda: not processes_with(str(folder)), told="the end of every process")


def test_twelve_pairs_survive_a_killed_worker_and_a_restarted_server(
    tmp_path: Path, prefect_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survive(tmp_path, prefect_template, models=6, workers=2, monkeypatch=monkeypatch)


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_sixty_pairs_over_four_workers_survive_too(
    tmp_path: Path, prefect_template: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survive(tmp_path, prefect_template, models=30, workers=4, monkeypatch=monkeypatch)


# ----------------------------------------------------------------------------------------------------- cancel and crash


class Machine:
    """A machine whose compiler hangs with a child of its own: its worker, and the job that it gets."""

    def __init__(self, folder: Path, url: str) -> None:
        from convert.catalog.pairs import expand
        from convert.catalog.planning import plan_pairs
        from convert.catalog.reader import read_catalog
        from convert.settings import load_settings
        from flows.spread import prepare
        from flows.values import TargetJob, as_parameter

        self.folder, self.url, self.pool = folder, url, f"atc-{folder.name}"
        file = catalogue(folder, models=1, targets='["Ascend910B3"]')
        settings = load_settings({}, folder=folder)
        plans = plan_pairs(expand(read_catalog(file)), settings)
        graph, version = prepare.fn("net0", plans, settings)
        job = TargetJob(pair=plans[0].pair, recipe=plans[0].recipe, why="new", graph=graph, version=version)
        self.parameters = {"job": as_parameter(job), "settings": {"registry": settings.registry}}
        cann = install_cann(folder / "cann", "8.5.0", acl=False)
        python_path = f"{cann['PYTHONPATH']}{os.pathsep}{ROOT}"
        self.environment = {**cann, "PYTHONPATH": python_path, "ATC_DOUBLE_FAULT": "hang"}
        self.worker: Worker | None = None

    def start(self) -> str:
        """Start a run, with a worker where there is none, and wait for its compiler; gives the run's id."""
        from prefect.deployments import run_deployment

        deploy("convert_target", self.pool, self.pool)
        if self.worker is None or self.worker.process.poll() is not None:
            self.worker = Worker(_server_at(self.url), self.pool, self.folder / "worker", **self.environment)
        name = f"convert_target/{self.pool}"
        started: Any = run_deployment(name, parameters=self.parameters, timeout=0, as_subflow=False)
        wait_for(lambda: compilers(self.folder), seconds=180, told="the compiler")
        return str(started.id)


@pytest.fixture(scope="module")
def machine(prefect_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    folder = tmp_path_factory.mktemp("machine")
    with pytest.MonkeyPatch.context() as patch, client_of(prefect_url, folder / "client"):
        for name in ("CONVERT_REGISTRY", "CONVERT_CACHE_DIR", "CONVERT_OUT"):
            patch.delenv(name, raising=False)
        patch.setenv("PYTHONPATH", str(ROOT))
        made = Machine(folder, prefect_url)
    yield made
    if made.worker is not None:
        made.worker.stop()
    wait_for(lambda: not processes_with(str(folder)), told="the end of every process")


@pytest.fixture
def hanging(server: str, machine: Machine) -> Iterator[tuple[Worker, str]]:
    """The worker, and the id of a run whose compiler hangs."""
    run = machine.start()
    assert machine.worker is not None
    yield machine.worker, run
    wait_for(lambda: not compilers(machine.folder), told="the end of the compiler")


def _server_at(url: str) -> Any:
    class Known:
        pass

    known = Known()
    known.url = url  # type: ignore[attr-defined]
    return known


def compilers(folder: Path) -> list[int]:
    """The hanging compiler and its child."""
    return [
        pid for pid in processes_with(str(folder / "cann")) if "atc_tool" in _command(pid) or "sleep" in _command(pid)
    ]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def state_of(run: str) -> str:
    from prefect.client.orchestration import get_client

    with get_client(sync_client=True) as client:
        return str(client.read_flow_run(run).state_type.value)  # type: ignore[arg-type, union-attr]


def cancel(run: str) -> None:
    from prefect.client.orchestration import get_client
    from prefect.states import Cancelling

    with get_client(sync_client=True) as client:
        client.set_flow_run_state(run, Cancelling())


def no_compiler(machine: Machine, run: str, state: str) -> None:
    wait_for(lambda: not compilers(machine.folder), seconds=60, told="the end of the compiler")
    wait_for(lambda: state_of(run) == state, seconds=60, told=f"the state {state}")


def test_a_cancelled_run_leaves_no_process(hanging: tuple[Worker, str], machine: Machine) -> None:
    worker, run = hanging
    cancel(run)
    no_compiler(machine, run, "CANCELLED")
    assert worker.process.poll() is None


def test_a_killed_flow_process_leaves_no_compiler(hanging: tuple[Worker, str], machine: Machine) -> None:
    _, run = hanging
    ours = {pid: _command(pid) for pid in processes_with(str(machine.folder))}
    flows = [pid for pid, command in ours.items() if "prefect.engine" in command or "flow_engine" in command]
    assert flows
    for pid in flows:
        os.kill(pid, signal.SIGKILL)
    no_compiler(machine, run, "CRASHED")


def test_a_run_that_its_worker_can_t_cancel_cancels_itself(hanging: tuple[Worker, str], machine: Machine) -> None:
    """After an outage of the server the worker has stopped listening (it is stopped here); the run asks by itself."""
    worker, run = hanging
    os.kill(worker.process.pid, signal.SIGSTOP)
    try:
        cancel(run)
        no_compiler(machine, run, "CANCELLED")
    finally:
        os.kill(worker.process.pid, signal.SIGCONT)


def test_a_killed_worker_leaves_no_compiler(hanging: tuple[Worker, str], machine: Machine) -> None:
    worker, run = hanging
    worker.kill()
    no_compiler(machine, run, "CRASHED")


# --------------------------------------------------------------------------------------------- schedules and operation


def test_a_scheduled_deployment_fires_on_its_cron(server: str, tmp_path: Path) -> None:
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import DeploymentScheduleCreate
    from prefect.client.schemas.schedules import CronSchedule

    file = catalogue(tmp_path, models=1, targets='["cpu"]')
    pool = f"cron-{tmp_path.name}"
    every_minute = DeploymentScheduleCreate(schedule=CronSchedule(cron="* * * * *"), active=True)
    made = deploy(
        "convert_catalog", pool, pool, parameters={"file": str(file), "local": True}, schedules=[every_minute]
    )
    with running(Worker(_server_at(server), pool, tmp_path / "worker")):
        index = tmp_path / "registry/net0/index.json"
        wait_for(lambda: index.exists() and '"1.0.0"' in index.read_text(), seconds=240, told="the scheduled run")
        with get_client(sync_client=True) as client:
            client.delete_deployment(made)  # type: ignore[arg-type]
    assert versions(tmp_path) == {"net0": [("cpu",)]}


def test_the_shipped_deployments_are_taken_by_prefect_as_they_are(server: str, tmp_path: Path) -> None:
    import yaml
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists
    from prefect.utilities.importtools import import_object

    shipped = yaml.safe_load((ROOT / "prefect.yaml").read_text())["deployments"]
    with get_client(sync_client=True) as client:
        for pool in {one["work_pool"]["name"] for one in shipped}:
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
    shutil.copyfile(ROOT / "prefect.yaml", tmp_path / "prefect.yaml")
    ended = subprocess.run(
        [sys.executable, "-m", "prefect", "--no-prompt", "deploy", "--all"],
        cwd=tmp_path,
        env=environment(tmp_path / "home", PREFECT_API_URL=server),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    with get_client(sync_client=True) as client:
        for one in shipped:
            flow = import_object(one["entrypoint"])
            there = client.read_deployment_by_name(f"{flow.name}/{one['name']}")
            assert there.pull_steps == []
            assert there.entrypoint == one["entrypoint"]
            assert [schedule.schedule.cron for schedule in there.schedules] == [
                schedule["cron"] for schedule in one.get("schedules", [])
            ]
            assert set(one.get("parameters", {})) <= set(there.parameter_openapi_schema["properties"])
            client.delete_deployment(there.id)


def test_the_registry_is_checked_and_swept_by_a_flow(server: str, tmp_path: Path) -> None:
    from flows.pools import known_toolchains
    from flows.refresh_registry import refresh_registry

    file = catalogue(tmp_path, models=1, targets='["cpu"]')
    assert run_catalog(file, local=True)[0].message == "1 published"
    state = refresh_registry(settings={"registry": f"{tmp_path}/registry"}, apply=True, return_state=True)
    assert state.is_completed()
    assert state.message.startswith("1 models sound. 0 files and 0 graphs removed. Toolchains here: ")
    assert known_toolchains({"onnxruntime"})["onnxruntime"].startswith("onnxruntime 1.")
    blob = max((tmp_path / "registry/net0/blobs/sha256").iterdir(), key=lambda path: path.stat().st_size)
    blob.chmod(0o644)
    blob.write_bytes(b"x" * blob.stat().st_size)
    state = refresh_registry(settings={"registry": f"{tmp_path}/registry"}, return_state=True)
    assert state.is_failed()
    assert state.message.startswith("damaged: net0")


@pytest.fixture
def postgres() -> Iterator[str]:
    """A PostgreSQL server of its own; gives the address that Prefect takes."""
    bins = os.pathsep.join([*map(str, sorted(Path("/usr/lib/postgresql").glob("*/bin"))), os.environ["PATH"]])
    if shutil.which("initdb", path=bins) is None and not os.environ.get("CI"):
        pytest.skip("postgresql is not installed")
    # Not below the test's own folder, which another user than root can't reach.
    folder, port = Path(tempfile.mkdtemp(prefix="postgres-")), free_port()
    user = "postgres" if os.getuid() == 0 else None
    if user:
        shutil.chown(folder, user)

    def run(*command: str) -> subprocess.Popen[bytes]:
        program = shutil.which(command[0], path=bins) or command[0]
        quiet = subprocess.DEVNULL
        return subprocess.Popen([program, *command[1:]], user=user, cwd=folder, stdout=quiet, stderr=quiet)

    assert run("initdb", "-D", str(folder / "data"), "-A", "trust", "-U", "prefect", "--no-sync").wait() == 0
    options = ("-F", "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={folder}", "-p", str(port))
    process = run("postgres", "-D", str(folder / "data"), *options)
    try:
        ready = ("pg_isready", "-h", "127.0.0.1", "-p", str(port), "-U", "prefect")
        wait_for(lambda: run(*ready).wait() == 0, seconds=60, told="PostgreSQL")
        assert run("createdb", "-h", "127.0.0.1", "-p", str(port), "-U", "prefect", "prefect").wait() == 0
        yield f"postgresql+asyncpg://prefect@127.0.0.1:{port}/prefect"
    finally:
        process.send_signal(signal.SIGINT)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def test_the_server_keeps_its_state_in_postgresql(postgres: str, tmp_path: Path) -> None:
    from flows.convert_model import convert_model

    server = Server(tmp_path / "server", postgres)
    server.start()
    file = catalogue(tmp_path, models=1)
    try:
        with client_of(server.url, tmp_path / "client"):
            deploy("convert_target", "onnxruntime", "onnxruntime")
            with running(Worker(server, "onnxruntime", tmp_path / "worker", limit=2)):
                assert run_catalog(file)[0].message == "2 published"
                places = {"registry": f"{tmp_path}/registry", "cache_dir": f"{tmp_path}/cache"}
                model = str(tmp_path / "models/net0.onnx")
                options: Any = {"name": "one", "precision": "bf16", "settings": places, "pools": True}
                assert convert_model(model, ["cpu"], **options, return_state=True).message == "1 published"
    finally:
        server.stop()
    assert not (server.home / "prefect.db").exists()
    assert versions(tmp_path) == {"net0": [("c500", "cpu")], "one": [("cpu",)]}
