"""Huawei Ascend: CANN beside its driver, the chip's kernels, the environment, torch_npu.

Places: driver ``/usr/local/Ascend/driver/version.info`` and kernels ``opp/built-in/op_impl/ai_core/tbe/kernel/<chip>``
as in installed trees of 8.1.RC1 and 8.5; up to 8.3 the package is Ascend-cann-kernels-<chip>, from 8.5 on
Ascend-cann-<chip>-ops, without which ``atc`` has no operators at all (CANN 8.5.0 release notes).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from convert.backends.base import Toolchain
from convert.doctor.values import Finding, Parts, Scene
from op_registry.targets import members_of
from op_registry.versions import in_range, is_version

KERNELS = "opp/built-in/op_impl/ai_core/tbe/kernel"
NOT_KERNELS = frozenset({"ops_oam", "config"})
"""Folders that the toolkit alone brings."""
HIDING = "ASCEND_RT_VISIBLE_DEVICES"


def check_ascend(scene: Scene) -> Parts:
    """Versions, pairs and findings of an Ascend machine."""
    found = scene.found
    driver = read_driver(scene) or next((card.driver for card in scene.cards if card.driver), "")
    packages = {name: scene.packages.get(name, "") for name in ("torch_npu", "torch")}
    versions = {"driver": driver, **packages}
    if isinstance(found, Toolchain):
        versions |= {"cann": found.version, "python": found.details.get("python", "")}
    pairs = (("cann", "driver"), ("cann", "python"), ("torch_npu", "cann"), ("torch_npu", "torch"))
    findings = (*_findings(scene, found),) if isinstance(found, Toolchain) else ()
    return Parts(versions=versions, pairs=pairs, findings=(*findings, *_hidden(scene)))


def read_driver(scene: Scene) -> str:
    """The driver's version as its own file says it; empty where there is none."""
    return key_of_file(scene.path("/usr/local/Ascend/driver/version.info"), "Version")


def key_of_file(path: Path, key: str) -> str:
    """A value of a ``key=value`` file; empty where the file or the key is missing."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")[: 1 << 16]
    except OSError:
        return ""
    match = re.search(rf"^{re.escape(key)}\s*=\s*(\S+)", text, re.MULTILINE)
    return match[1] if match else ""


def _findings(scene: Scene, found: Toolchain) -> Iterator[Finding]:
    sourced = found.details.get("sourced", "yes")
    if sourced.startswith("no"):
        script = sourced.partition("source ")[2]
        yield Finding(
            level="note",
            about="environment",
            text="the set_env.sh of this CANN was not sourced; the compiler gets what it needs all the same",
            hint=f"source {script}" if script else "source its set_env.sh for other programs",
        )
    yield from _environment(scene, found)
    if missing := found.details.get("python_missing", ""):
        yield Finding(
            level="warning",
            about="Python packages",
            text=f"the toolkit's interpreter lacks what ATC imports: {missing}",
            hint=f"python3 -m pip install {missing}",
            source="CANN installation guide",
        )
    if wrong := found.details.get("python_wrong", ""):
        yield Finding(level="warning", about="Python", text=wrong, hint="give the toolkit an interpreter that it takes")
    yield from _kernels(scene, found)
    if scene.cards and found.details.get("acl") == "no" and found.details.get("ais_bench") == "no":
        yield Finding(
            level="note",
            about="running",
            text="a card is here, and neither pyACL nor ais_bench is in the toolkit's interpreter: artifacts can be"
            " compiled here, and not run",
            hint="source set_env.sh, which puts pyACL on PYTHONPATH, or install ais_bench",
        )


def _environment(scene: Scene, found: Toolchain) -> Iterator[Finding]:
    """Variables that name another CANN than the one that is used."""
    home = found.details.get("home", "")
    for name in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME", "ASCEND_OPP_PATH"):
        text = scene.environment.get(name, "")
        if text and not Path(text).exists():
            yield Finding(
                level="warning",
                about="environment",
                text=f"{name}={text} does not exist",
                hint=f"source the set_env.sh of {home or 'this CANN'} in a fresh shell",
            )


def _kernels(scene: Scene, found: Toolchain) -> Iterator[Finding]:
    """The kernels of the chips: without them every operator of the graph is refused."""
    home = found.details.get("home", "")
    folder = Path(home) / KERNELS
    if not home or not (Path(home) / "opp" / "built-in").is_dir():
        return
    since = is_version(found.version) and in_range(found.version, ">=8.5")
    for chip in sorted({member.arch for member in members_of(scene.target) if member.arch}):
        inside = folder / chip.lower()
        if inside.is_dir() and {item.name for item in inside.iterdir()} - NOT_KERNELS:
            yield Finding(level="ok", about="kernels", text=f"those of {chip} are installed")
            continue
        short = chip.lower().removeprefix("ascend").replace("910_93", "a3")
        package = f"Ascend-cann-{short}-ops" if since else f"Ascend-cann-kernels-{short}"
        yield Finding(
            level="blocked" if since else "warning",
            about="kernels",
            text=f"there are none of {chip} in {folder}"
            + ("" if since else ": ATC then compiles each operator itself, which is slow and may fail"),
            hint=f"install {package} {found.version}",
            source="CANN 8.5.0 release notes" if since else "CANN installation guide",
        )


def _hidden(scene: Scene) -> Iterator[Finding]:
    text = scene.environment.get(HIDING)
    if text is not None and text.strip() in ("", "-1"):
        yield Finding(
            level="warning", about="environment", text=f"{HIDING}={text!r} hides every card", hint=f"unset {HIDING}"
        )
