"""Many versions in a registry, and many conversions at once: how time and memory grow, and whether anything breaks.

An exponent of 1 is linear growth, 2 quadratic; of one operation on a registry with n times as many versions as well.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from artifacts.digest import file_entry, sha256_bytes
from artifacts.fsck import fsck
from artifacts.gc import collect
from artifacts.listing import list_models
from artifacts.manifest import ChainLink, Manifest, ModelSource
from artifacts.names import parse_ref
from artifacts.publish import PublishRequest, TargetRelease, publish
from artifacts.registry import Registry
from artifacts.resolve import resolve
from artifacts.verify import verify_ref
from benchmarks.big import growth
from benchmarks.measure import Grid, Part, Row, descendants, proportional

MODELS = 50
VERSIONS = (20, 100, 500)
AT_ONCE = 20
CONVERSION_BOUND = 1.15
"""CPU of conversions side by side over the same ones in turn."""


def rows() -> Part:
    """The registry, then the conversions."""
    with tempfile.TemporaryDirectory() as folder:
        registry_rows, grid = registries(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        together = at_once(Path(folder))
    return Part(rows=(*registry_rows, *together), grids=(grid,))


# ------------------------------------------------------------------------------------------------------- the registry


def registries(folder: Path) -> tuple[list[Row], Grid]:
    """Publish 50 models up to 500 versions each, and at three sizes time what people and machines ask for."""
    root, found = folder / "registry", {}
    have = 0
    for versions in VERSIONS:
        begun = time.process_time()
        for number in range(have, versions):
            for model in range(MODELS):
                publish(root, _request(folder / "made", model, number))
        count = (versions - have) * MODELS
        found[versions * MODELS] = {"publish one": (time.process_time() - begun) / count, **_asked(root, versions)}
        have = versions
    sizes = [float(size) for size in found]
    operations = list(found[VERSIONS[0] * MODELS])
    grown = [
        growth(f"{what}, {MODELS} models", sizes, [found[int(size)][what] for size in sizes]) for what in operations
    ]
    lines = tuple(
        (what, *(f"{found[int(size)][what] * 1000:,.1f}" for size in sizes), f"{row.ours:.2f}")
        for what, row in zip(operations, grown, strict=True)
    )
    header = ("CPU ms", *(f"{int(size):,} versions" for size in sizes), "exponent")
    return grown, Grid(title="The registry as it grows", header=header, lines=lines)


def _request(folder: Path, model: int, number: int) -> PublishRequest:
    folder.mkdir(exist_ok=True)
    content = f"{model} {number}".encode()
    (folder / "net.om").write_bytes(content)
    source, export, checked = (sha256_bytes(word) for word in (b"source", b"export", b"checked"))
    manifest = Manifest(
        model=ModelSource(format="torchscript", sha256=source),
        chain=(
            ChainLink(stage="export", digest=export, parent=source),
            ChainLink(stage="check", digest=checked, parent=export),
            ChainLink(stage="compile", digest=sha256_bytes(content), parent=checked),
        ),
        target="Ascend910B",
        soc="Ascend910B3",
        backend="atc",
        precision="fp16",
        plan=("atc", "--model=model.onnx"),
        toolchain={"cann": "8.0.RC3"},
        libraries={"onnx": "1.20.0"},
        support={"supported": True},
        validation={"passed": True, "outputs": [{"name": "y", "cosine": 0.9999, "rel_l2": 0.001}]},
        ran_on="device",
        files=(file_entry(folder, "net.om"),),
    )
    release = TargetRelease(manifest=manifest, sources={"net.om": folder / "net.om"})
    return PublishRequest(name=f"model{model:02d}", version=f"1.0.{number}", targets=(release,))


def _asked(root: Path, versions: int) -> dict[str, float]:
    """CPU seconds of each operation; gc and fsck go over all of it."""
    registry = Registry(root)
    last = parse_ref(f"model01:1.0.{versions - 1}")
    calls: dict[str, Callable[[], object]] = {
        "list, first time": lambda: list_models(registry),
        "list, again": lambda: list_models(registry),
        "resolve one": lambda: resolve(registry, last),
        "verify one": lambda: verify_ref(root, f"model01:1.0.{versions - 1}"),
        "gc, all": lambda: collect(root),
        "fsck, all": lambda: _clean(root),
    }
    return {what: _cpu_of(call) for what, call in calls.items()}


def _clean(root: Path) -> None:
    report = fsck(root)
    if not report.clean:
        raise SystemExit(f"fsck finds damage: {report.models}")


def _cpu_of(call: Callable[[], object]) -> float:
    begun = time.process_time()
    call()
    return time.process_time() - begun


# ----------------------------------------------------------------------------------------------- conversions at once


def at_once(folder: Path) -> list[Row]:
    """The same models in turn, then all at the same moment into one cache, one registry and one output folder."""
    from benchmarks.networks import convolutions

    for number in range(AT_ONCE):
        model, _ = convolutions(blocks=3, width=16 + number, size=28)
        (folder / f"net{number:02d}.onnx").write_bytes(model.SerializeToString())
    before = _children_cpu()
    alone = max(_converted(folder, number, "turn") for number in range(AT_ONCE))
    in_turn = _children_cpu() - before
    processes = [_started(folder, number, "once") for number in range(AT_ONCE)]
    watch = _Watched(processes)
    failed = [number for number, process in enumerate(processes) if process.wait() != 0]
    peak, side_by_side = watch.ended(), _children_cpu() - before - in_turn
    if failed:
        logs = "\n".join((folder / f"once{number:02d}.log").read_text()[-500:] for number in failed)
        raise SystemExit(f"{len(failed)} of {AT_ONCE} conversions failed: {logs}")
    _clean(folder / "once-registry")
    listed = list_models(Registry(folder / "once-registry"))
    if len(listed) != AT_ONCE or any(model.problem for model in listed):
        raise SystemExit(f"not all are in the registry: {listed}")
    what = f"{AT_ONCE} conversions at once on {len(os.sched_getaffinity(0))} cores"
    return [
        Row(what=f"{what}, CPU, beside in turn", ours=side_by_side, base=in_turn, bound=CONVERSION_BOUND),
        Row(
            what=f"{what}, peak memory, beside {AT_ONCE} × one",
            ours=peak / 1e6,
            base=AT_ONCE * alone / 1e6,
            unit="MB",
            bound=1.0,
        ),
    ]


def _started(folder: Path, number: int, kind: str) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "convert",
        f"net{number:02d}.onnx",
        "--target",
        "cpu",
        "-q",
        "--out",
        f"{kind}-out",
    ]
    places = {"CONVERT_CACHE_DIR": str(folder / f"{kind}-cache"), "CONVERT_REGISTRY": str(folder / f"{kind}-registry")}
    with (folder / f"{kind}{number:02d}.log").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, env={**os.environ, **places}, stdout=log, stderr=log)


def _converted(folder: Path, number: int, kind: str) -> int:
    """One conversion to its end; the peak of its memory."""
    process = _started(folder, number, kind)
    watch = _Watched([process])
    if process.wait() != 0:
        raise SystemExit((folder / f"{kind}{number:02d}.log").read_text())
    return watch.ended()


class _Watched:
    """The largest sum of memory of processes and their descendants, looked at until they end."""

    def __init__(self, processes: list[subprocess.Popen[bytes]]) -> None:
        self._peak, self._over = 0, threading.Event()
        self._pids = [process.pid for process in processes]
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._over.wait(0.2):
            seen = sum(proportional(pid) for parent in self._pids for pid in descendants(parent))
            self._peak = max(self._peak, seen)

    def ended(self) -> int:
        """Stop looking; the peak in bytes."""
        self._over.set()
        self._thread.join()
        return self._peak


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
