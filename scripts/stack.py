"""``make stack``: all of model-convert's flows on this machine, on loopback, below one folder.

PostgreSQL, a Prefect server on it, a docker-registry, a worker of the pool ``onnxruntime`` and one of ``catalog``; then
the example catalogue, twice. Ctrl-C (or ``--once``) takes everything down again; what was made stays in the folder.
"""

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
from collections.abc import Callable
from pathlib import Path

BIN = Path(sys.executable).parent
ROOT = Path(__file__).resolve().parent.parent
PREFECT = str(BIN / "prefect")
SHIPPED = ROOT / "prefect.yaml"
MODELS = 2
CATALOGUE = """[settings]
registry = "{registry}"

[catalog]
targets = ["cpu"]
owner = "the example"
channel = "prod"
on_regression = ""

[[model]]
glob = "models/*.onnx"
"""


class Stack:
    """What is running, in the order in which it was started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[tuple[str, subprocess.Popen[bytes], signal.Signals]] = []
        self.environment = {
            **os.environ,
            "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
            "PREFECT_HOME": str(folder / "prefect"),
            "PREFECT_SERVER_ALLOW_EPHEMERAL_MODE": "false",
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_SERVER_CONCURRENCY_LEASE_STORAGE": "prefect.server.concurrency.lease_storage.filesystem",
            "PREFECT_WORKER_QUERY_SECONDS": "2",
            "DO_NOT_TRACK": "1",
        }

    def start(
        self, name: str, *command: str, user: str | None = None, stop: signal.Signals = signal.SIGTERM, **more: str
    ) -> subprocess.Popen[bytes]:
        """Start something; its output goes to ``<name>.log``."""
        work = self.folder / "work" / name
        work.mkdir(parents=True, exist_ok=True)
        if user:
            shutil.chown(work, user)
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                command,
                cwd=work,
                env={**self.environment, **more},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                user=user,
            )
        self._running.append((name, process, stop))
        return process

    def stop(self) -> None:
        """End everything, the last one first; what doesn't end is killed with its session."""
        for name, process, how in reversed(self._running):
            print(f"stopping {name}", flush=True)
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(how)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._running.clear()

    def forget(self) -> None:
        """The last thing started has ended by itself."""
        self._running.pop()

    def wait_for(self, name: str, ready: Callable[[], bool], seconds: float = 180.0) -> None:
        """Wait until something answers; stop with its log's end when it ends instead."""
        deadline = time.monotonic() + seconds
        while not ready():
            lost = [other for other, process, _ in self._running if process.poll() not in (None, 0)]
            if lost or time.monotonic() > deadline:
                told = (self.folder / f"{(lost or [name])[0]}.log").read_text(errors="replace")[-2000:]
                raise SystemExit(f"{name} did not come up:\n{told}")
            time.sleep(0.3)
        print(f"{name} is up", flush=True)

    def run(self, *command: str) -> int:
        """Run one command and show it first."""
        print("$ " + " ".join(command), flush=True)
        return subprocess.run(command, cwd=self.folder, env=self.environment, check=False).returncode


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(url: str) -> bool:
    """Whether an address answers."""
    try:
        urllib.request.urlopen(url, timeout=2).close()
    except OSError:
        return False
    return True


def start_postgres(stack: Stack) -> str:
    """PostgreSQL of its own, with its data in the folder; gives the address that Prefect takes."""
    port, user = free_port(), "postgres" if os.getuid() == 0 else None
    data = stack.folder / "work" / "postgresql" / "data"
    tools = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    stack.environment["PATH"] += "".join(f"{os.pathsep}{path}" for path in reversed(tools))
    path = stack.environment["PATH"]
    if shutil.which("initdb", path=path) is None:
        raise SystemExit("PostgreSQL is not installed: scripts/system-packages installs it on Debian")
    if not data.exists():
        initdb = shutil.which("initdb", path=path) or ""
        made = stack.start("postgresql", initdb, "-D", str(data), "-A", "trust", "-U", "prefect", user=user)
        if made.wait():
            raise SystemExit((stack.folder / "postgresql.log").read_text())
        stack.forget()
    options = ("-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={data}", "-p", str(port))
    postgres = shutil.which("postgres", path=path) or ""
    stack.start("postgresql", postgres, "-D", str(data), *options, user=user, stop=signal.SIGINT)
    where = ("-h", "127.0.0.1", "-p", str(port), "-U", "prefect")

    def ready() -> bool:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.run(["pg_isready", *where], env=stack.environment, check=False, **quiet).returncode == 0  # type: ignore[call-overload]

    stack.wait_for("postgresql", ready)
    subprocess.run(["createdb", *where, "prefect"], env=stack.environment, check=False, stderr=subprocess.DEVNULL)
    return f"postgresql+asyncpg://prefect@127.0.0.1:{port}/prefect"


def start_server(stack: Stack, database: str) -> str:
    """The Prefect server; gives its address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    stack.environment["PREFECT_API_URL"] = f"{url}/api"
    stack.start(
        "prefect-server",
        *(PREFECT, "server", "start", "--host", "127.0.0.1", "--port", str(port)),
        PREFECT_SERVER_DATABASE_CONNECTION_URL=database,
    )
    stack.wait_for("prefect-server", lambda: answers(f"{url}/api/health"))
    return url


def start_registry(stack: Stack) -> str:
    """docker-registry; gives the registry's name for ``--registry``."""
    address = f"127.0.0.1:{free_port()}"
    storage = stack.folder / "registry"
    storage.mkdir(exist_ok=True)
    config = stack.folder / "registry.yml"
    config.write_text(
        f"version: 0.1\nstorage: {{filesystem: {{rootdirectory: {storage}}}, delete: {{enabled: true}}}}\n"
        f"http: {{addr: '{address}'}}\nlog: {{level: error}}\n"
    )
    stack.start("docker-registry", "docker-registry", "serve", str(config), OTEL_TRACES_EXPORTER="none")
    stack.wait_for("docker-registry", lambda: answers(f"http://{address}/v2/"))
    return f"oci://{address}/models"


def start_workers(stack: Stack) -> None:
    """All pools and deployments of ``prefect.yaml``, and a worker for each of the two pools that are served here."""
    os.environ.update({name: value for name, value in stack.environment.items() if name.startswith("PREFECT_")})
    import yaml
    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate
    from prefect.exceptions import ObjectAlreadyExists

    with get_client(sync_client=True) as client:
        for pool in sorted({one["work_pool"]["name"] for one in yaml.safe_load(SHIPPED.read_text())["deployments"]}):
            with contextlib.suppress(ObjectAlreadyExists):
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
    shutil.copyfile(SHIPPED, stack.folder / "prefect.yaml")
    if stack.run(PREFECT, "--no-prompt", "deploy", "--all"):
        raise SystemExit("the deployments were not taken")
    for pool, limit in (("catalog", "1"), ("onnxruntime", "2")):
        stack.start(
            f"worker-{pool}",
            *(PREFECT, "worker", "start", "--pool", pool, "--type", "process", "--limit", limit),
            CONVERT_CACHE_DIR=str(stack.folder / "cache"),
            CONVERT_OUT=str(stack.folder / "out"),
        )


def start_web(stack: Stack, registry: str) -> str:
    """The registry's web page, on a copy of what was published; gives its address, empty where it can't be served."""
    python = (sys.executable, "-m", "artifacts")
    if subprocess.run([*python, "serve", "--help"], env=stack.environment, capture_output=True, check=False).returncode:
        return ""
    copy = stack.folder / "web-copy"
    for number in range(MODELS):
        stack.run(*python, "copy", f"{registry}/net{number}", f"net{number}", "--all", "--registry", str(copy))
    port = free_port()
    stack.start("web", *python, "serve", "--registry", str(copy), "--port", str(port), "--share", registry)
    stack.wait_for("web", lambda: answers(f"http://127.0.0.1:{port}/"), seconds=30)
    return f"http://127.0.0.1:{port}"


def make_models(folder: Path) -> None:
    """Small ONNX models."""
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save

    folder.mkdir(exist_ok=True)
    for number in range(MODELS):
        weight = np.random.default_rng(number).standard_normal((64, 10)).astype("f4")
        nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
        graph = helper.make_graph(
            nodes,
            "net",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 64])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 10])],
            [numpy_helper.from_array(weight, "w")],
        )
        save(
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
            folder / f"net{number}.onnx",
        )


def main(folder: Path, *, once: bool) -> int:
    """Bring everything up, run the example, wait, take everything down."""
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    stack = Stack(folder)
    try:
        url = start_server(stack, start_postgres(stack))
        registry = start_registry(stack)
        start_workers(stack)
        make_models(folder / "models")
        (folder / "convert.toml").write_text(CATALOGUE.format(registry=registry), encoding="utf-8")
        wanted = ("-p", f"file={folder / 'convert.toml'}", "--watch", "--watch-interval", "2")
        ended = [stack.run(PREFECT, "deployment", "run", "convert_catalog/nightly", *wanted) for _ in range(2)]
        stack.run(sys.executable, "-m", "artifacts", "show", "net0:prod", "--registry", registry)
        web = start_web(stack, registry)
        print(f"\nPrefect   {url}\nregistry  {registry}" + (f"\nweb       {web}" if web else ""), flush=True)
        if not once:
            print("Ctrl-C takes everything down", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    finally:
        stack.stop()
    return max(ended)


if __name__ == "__main__":
    words = sys.argv[1:]
    places = [word for word in words if not word.startswith("-")]
    sys.exit(main(Path(places[0] if places else "stack-out"), once="--once" in words))
