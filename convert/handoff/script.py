"""``compile.sh``: a plan as a script that needs bash and the toolkit, and nothing of this program."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from artifacts.digest import FileEntry
from convert.errors import EXPECTED
from convert.handoff.toolkits import TOOLKITS, Toolkit
from convert.stages.compile import has_soc_places
from convert.values import Plan
from op_registry.targets import find_target

TEMPLATE = Path(__file__).with_name("compile.sh.in")
PLAN = "plan"
"""The folder of a bundle with the plan's files as they are planned, the place of the SoC still open."""
WORD = re.compile(r"@([A-Z_]+)@")


def compile_script(
    plan: Plan, *, target: str, precision: str, members: Sequence[str], files: Sequence[FileEntry]
) -> str:
    """The script for a plan. ``members``: the SoCs to choose from; ``files``: what it checks before it runs."""
    toolkit = TOOLKITS.get(plan.backend, Toolkit())
    name, version, soc = (plan.needs.get(key, "") for key in ("toolchain", "version", "soc"))
    is_open = has_soc_places(plan)
    words = {
        "TARGET": target,
        "PRECISION": precision,
        "TOOLKIT": f"{name or plan.backend} {version}".strip(),
        "OUTPUT": plan.output,
        "Q_TARGET": shlex.quote(target),
        "Q_TOOLKIT": shlex.quote(name or plan.backend),
        "Q_PACKAGES": shlex.quote(toolkit.packages or name or plan.backend),
        "Q_VERSION": shlex.quote(version),
        "Q_SOC": "''" if is_open else shlex.quote(soc),
        "Q_MEMBERS": shlex.join(members),
        "OPEN_SOC": "yes" if is_open else "no",
        "Q_CARDS": "" if is_open else shlex.join(_cards(plan, target)),
        "HERE": _body(toolkit.here),
        "Q_OUTPUT": shlex.quote(plan.output),
        "Q_ARGV": shlex.join(plan.argv),
        "SETUP": " ".join(f'"{path}"' for path in toolkit.setup),
        "Q_FILES": shlex.join(sorted(plan.files)),
        "VERSION": _body(toolkit.version),
        "MACHINE_SOC": _body(toolkit.soc),
        "SETTLE": _body(toolkit.settle),
        "BEFORE": _body(toolkit.before),
        "DIGESTS": "\n".join(f"{entry.sha256.removeprefix('sha256:')}  {entry.name}" for entry in files),
        "ENVIRONMENT": _exports(plan),
    }
    return WORD.sub(lambda match: words[match[1]], TEMPLATE.read_text(encoding="utf-8"))


def _cards(plan: Plan, target: str) -> list[str]:
    """The names by which the card may call itself that the plan compiles on; none where it needs no card."""
    if not (card := plan.needs.get("card", "")):
        return []
    names = [card, plan.needs.get("arch", "")]
    with contextlib.suppress(*EXPECTED):
        names += [find_target(target).name, *find_target(target).aliases]
    return list(dict.fromkeys(name for name in names if name))


def _body(text: str) -> str:
    return text.rstrip("\n") or "\n  :"


def _exports(plan: Plan) -> str:
    """Variables, with the place of the SoC filled in by the script."""
    lines = []
    for name, value in sorted(plan.environment.items()):
        lines.append(f"  export {name}={shlex.quote(value)}")
        lines.append(f'  {name}=${{{name}//"$open"/$soc}}')
    return "\n".join(lines) or "  :"
