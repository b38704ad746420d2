"""The other vendors: which versions are told, and which are held against each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from convert.backends.asking import hidden_by
from convert.backends.base import Toolchain
from convert.doctor.values import Finding, Parts, Scene


def check_cambricon(scene: Scene) -> Parts:
    """MagicMind beside the driver, CNToolkit and torch_mlu."""
    versions = {
        "magicmind": _version(scene),
        "driver": _driver(scene),
        "cntoolkit": _detail(scene, "cntoolkit") or _first(scene, "/usr/local/neuware/version.txt", r"(\d+\.\d+\.\d+)"),
        "cnnl": _detail(scene, "cnnl"),
        "python": _detail(scene, "python"),
        "torch_mlu": scene.packages.get("torch_mlu", ""),
        "torch": scene.packages.get("torch", ""),
    }
    pairs = (
        ("magicmind", "driver"), ("magicmind", "cntoolkit"), ("magicmind", "cnnl"), ("magicmind", "python"),
        ("cntoolkit", "driver"), ("torch_mlu", "torch"), ("torch_mlu", "driver"), ("torch_mlu", "cntoolkit"),
    )  # fmt: skip
    lacking = [name for name in ("NEUWARE_HOME",) if not scene.environment.get(name)]
    findings = [
        Finding(
            level="note",
            about="environment",
            text=f"{name} is not set",
            hint="export NEUWARE_HOME=/usr/local/neuware, and put its lib64 on LD_LIBRARY_PATH",
        )
        for name in lacking
        if isinstance(scene.found, Toolchain)
    ]
    return Parts(versions=versions, pairs=pairs, findings=(*findings, *hidden(scene)))


def check_migraphx(scene: Scene) -> Parts:
    """MIGraphX beside ROCm, or Hygon's DTK beside its driver."""
    versions = {"migraphx": _version(scene), "python": _detail(scene, "python"), "driver": _driver(scene)}
    if scene.target.vendor == "hygon":
        versions |= {"dtk": _detail(scene, "dtk") or _first(scene, "/opt/dtk/.info/rocm_version", r"([\d.]+)")}
        pairs: tuple[tuple[str, str], ...] = (("dtk", "driver"),)
    else:
        versions |= {"rocm": _first(scene, "/opt/rocm/.info/version", r"(\d+\.\d+\.\d+)")}
        pairs = (("migraphx", "rocm"), ("migraphx", "python"))
    return Parts(versions=versions, pairs=pairs, findings=tuple(hidden(scene)))


def check_nvidia(scene: Scene) -> Parts:
    """TensorRT beside CUDA and the driver."""
    versions = {"tensorrt": _version(scene), "cuda": _detail(scene, "cuda") or _cuda(scene), "driver": _driver(scene)}
    return Parts(versions=versions, pairs=(("tensorrt", "cuda"), ("cuda", "driver")), findings=tuple(hidden(scene)))


def check_metax(scene: Scene) -> Parts:
    """MACA beside its driver and MetaX's torch; without the provider the artifact is checked on the host."""
    torch = scene.packages.get("torch", "")
    versions = {
        "maca": _detail(scene, "maca") or _first(scene, "/opt/maca/Version.txt", r"(\d+(?:\.\d+)+)"),
        "driver": _driver(scene),
        "torch": torch if "metax" in torch else "",
        "onnxruntime": _version(scene),
    }
    return Parts(versions=versions, pairs=(("maca", "driver"), ("torch", "maca")), findings=tuple(hidden(scene)))


def check_iluvatar(scene: Scene) -> Parts:
    """The CoreX SDK and the kernel driver, which must be of one release."""
    versions = {"corex": _detail(scene, "corex") or _version(scene), "driver": _driver(scene)}
    return Parts(versions=versions, pairs=(("corex", "driver"),), findings=tuple(hidden(scene)))


def check_nothing(scene: Scene) -> Parts:
    """A vendor of which nothing more is known than its toolchain's version."""
    return Parts(versions={scene.target.backend: _version(scene)})


def hidden(scene: Scene) -> Iterator[Finding]:
    """The variable that hides all cards, while the vendor's tool still shows them."""
    if name := hidden_by(scene.target.vendor, scene.environment):
        text = f"{name}={scene.environment[name]!r} hides every card"
        yield Finding(level="warning", about="environment", text=text, hint=f"unset {name}")


def _version(scene: Scene) -> str:
    return scene.found.version if isinstance(scene.found, Toolchain) else ""


def _detail(scene: Scene, name: str) -> str:
    return scene.found.details.get(name, "") if isinstance(scene.found, Toolchain) else ""


def _driver(scene: Scene) -> str:
    return next((card.driver for card in scene.cards if card.driver), "")


def _first(scene: Scene, name: str, pattern: str) -> str:
    """The first match in a file of this machine; empty where there is none."""
    try:
        text = scene.path(name).read_text(encoding="utf-8", errors="replace")[: 1 << 16]
    except OSError:
        return ""
    match = re.search(pattern, text)
    return match[1] if match else ""


def _cuda(scene: Scene) -> str:
    """The CUDA toolkit's version by its ``version.json``."""
    try:
        document = json.loads(scene.path("/usr/local/cuda/version.json").read_text(encoding="utf-8")[: 1 << 20])
        return str(document["cuda"]["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
