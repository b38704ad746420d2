"""The machine itself: this program's libraries, memory, disk."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

from artifacts.render import size_text
from convert.doctor.values import Finding, Health
from convert.installed import installed, normalized
from convert.settings import Settings

ONNX = ("numpy", "onnx", "onnxruntime", "onnxsim")
TORCH = ("torch", "onnxscript")
LOW_MEMORY = 4 << 30
LOW_DISK = 5 << 30


def examine_machine(settings: Settings) -> Health:
    """Whether conversions can run here at all."""
    findings = (*_libraries(), *_memory(), *_disk(settings))
    versions = {name: installed().get(normalized(name), "") for name in (*ONNX, *TORCH)}
    return Health(
        vendor="machine",
        title=f"this machine ({platform.machine()}, Python {platform.python_version()})",
        usable=all(finding.level != "blocked" for finding in findings),
        present=True,
        versions={name: version for name, version in versions.items() if version},
        findings=findings,
    )


def _libraries() -> Iterator[Finding]:
    hint = "pip install 'model-convert[convert]'"
    missing = [name for name in ONNX if importlib.util.find_spec(name) is None]
    if missing:
        yield Finding(level="blocked", about="libraries", text=f"not installed: {', '.join(missing)}", hint=hint)
    missing = [name for name in TORCH if importlib.util.find_spec(name) is None]
    if missing:
        text = f"not installed: {', '.join(missing)}; ONNX models can be converted, PyTorch models can't"
        yield Finding(level="warning", about="libraries", text=text, hint=hint)


def _memory() -> Iterator[Finding]:
    page = os.sysconf("SC_PAGE_SIZE")
    total, free = os.sysconf("SC_PHYS_PAGES") * page, available_memory()
    low = free < LOW_MEMORY
    yield Finding(
        level="warning" if low else "ok",
        about="memory",
        text=f"{size_text(free)} free of {size_text(total)}",
        hint="big models need 1.3 times their size and half a gigabyte" if low else "",
    )


def available_memory() -> int:
    """Bytes that programs can still have, as the kernel reckons."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def _disk(settings: Settings) -> Iterator[Finding]:
    """Space where the cache, the output and the registry lie; folders of one file system are named together."""
    places = {"cache": settings.cache_dir, "output": settings.out, "registry": settings.registry}
    by_device: dict[int, tuple[int, list[str]]] = {}
    for name, place in places.items():
        if "://" in place:
            continue
        folder = _standing(Path(place).absolute())
        names = by_device.setdefault(folder.stat().st_dev, (shutil.disk_usage(folder).free, []))[1]
        names.append(name)
        if not os.access(folder, os.W_OK):
            hint = "point the setting at a folder that can be written"
            yield Finding(level="blocked", about=name, text=f"{folder} can't be written", hint=hint)
    for free, names in by_device.values():
        low = free < LOW_DISK
        yield Finding(
            level="warning" if low else "ok",
            about=f"disk ({', '.join(names)})",
            text=f"{size_text(free)} free",
            hint="`convert cache --prune` frees what can be made again" if low else "",
        )


def _standing(path: Path) -> Path:
    """The nearest folder above that exists."""
    return next(folder for folder in (path, *path.parents) if folder.is_dir())
