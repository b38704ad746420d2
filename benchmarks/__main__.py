"""``make bench``: every part, or those of ONLY, as one table in Markdown and in HTML with pictures.

Results of earlier runs of the other parts are kept in ``bench-out``, so that one part can be measured again alone.
"""

from __future__ import annotations

import argparse
import datetime
import importlib
import os
import platform
import sys
import time
import traceback
from importlib.metadata import version
from pathlib import Path

import msgspec

from benchmarks.measure import Part
from benchmarks.page import html, markdown

ROOT = Path(__file__).resolve().parent.parent
PARTS = {
    "main_job": "The main job",
    "peers": "Beside other tools: the same models in the same run",
    "fp16": "float16: whose file ONNX Runtime can load",
    "memory": "Peak memory of a 3 GB model, stage by stage",
    "big": "Big: an 8 GB model, and graphs of up to 100,000 nodes",
    "many": "Many: 25,000 versions in a registry, 20 conversions at once",
    "registry": "The operator support registry",
    "lowering": "Opset lowering, beside onnx's own converter",
    "flows": "What a flow adds to the direct call",
    "precision": "The forecast beside one inference, and the mixed plan beside auto_mixed_precision",
}
LIBRARIES = ("torch", "onnx", "onnxruntime", "onnxsim", "onnxscript", "prefect")
HEAD = """# Benchmarks

<!-- Written by `make bench`; measure again instead of editing. -->

Ratios against the same work done by others, on the same models, on one machine, in one run: CPU seconds (user and
system, of all processes) and the peak of the memory that all processes hold together (proportional set size). `ours`
over `base` is the ratio; a bound is what the project sets itself, ✓ where it holds. The same with pictures:
[benchmarks.html](benchmarks.html). `make bench` measures all of it again; the parts below took {minutes:.0f} minutes
on the clock. It needs 24 GB of memory and 30 GB of disk.

"""


def main() -> int:
    """Run the parts, write the pages, print the Markdown; 1 where a bound doesn't hold or a part failed."""
    parser = argparse.ArgumentParser(description="Measure, and write the tables.")
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="those parts alone")
    parser.add_argument("--out", type=Path, default=ROOT / "bench-out")
    parser.add_argument("--docs", type=Path, default=None, help="write the pages into this folder too")
    options = parser.parse_args()
    wanted = options.parts or list(PARTS)
    options.out.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = str(ROOT)  # commands run in folders of their own
    for name in wanted:
        part = measured(name)
        (options.out / f"{name}.json").write_bytes(msgspec.json.encode(part))
        print(f"{name}: {part.seconds:.0f} s{'' if part.holds else ', not all bounds hold'}", file=sys.stderr)
    found = {name: path for name in PARTS if (path := options.out / f"{name}.json").is_file()}
    parts = {name: msgspec.json.decode(path.read_bytes(), type=Part) for name, path in found.items()}
    text = pages(parts, [options.out, *([options.docs] if options.docs else [])])
    print(text)
    return 0 if all(parts[name].holds for name in wanted) else 1


def measured(name: str) -> Part:
    """One part's findings; whatever goes wrong is said in its place, and the others go on."""
    begun = time.monotonic()
    try:
        found = importlib.import_module(f"benchmarks.{name}").rows()
        part = found if isinstance(found, Part) else Part(rows=tuple(found))
    except (Exception, SystemExit) as error:  # noqa: BLE001  one part that fails must not hide the others
        traceback.print_exc()
        part = Part(failed=f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    return msgspec.structs.replace(part, seconds=time.monotonic() - begun)


def pages(parts: dict[str, Part], folders: list[Path]) -> str:
    """Write both pages into each folder; gives the Markdown."""
    known = facts()
    text = HEAD.format(minutes=sum(part.seconds for part in parts.values()) / 60) + markdown(parts, PARTS, known)
    for folder in folders:
        (folder / "benchmarks.md").write_text(text, encoding="utf-8")
        (folder / "benchmarks.html").write_text(html(parts, PARTS, known), encoding="utf-8")
    return text


def facts() -> dict[str, str]:
    """When, where and with what."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = {line.partition(":")[2].strip() for line in lines if line.startswith("model name")}
    memory = int(Path("/proc/meminfo").read_text().split()[1]) / 1e6
    return {
        "date": datetime.date.today().isoformat(),
        "processor": f"{len(list_cores(lines))} × {', '.join(sorted(models)) or platform.processor()}",
        "memory": f"{memory:.0f} GB",
        "system": f"{platform.system()} {platform.release().split('-')[0]}, Python {platform.python_version()}",
        "versions": ", ".join(f"{name} {version(name)}" for name in LIBRARIES),
    }


def list_cores(lines: list[str]) -> list[str]:
    """The processors of /proc/cpuinfo."""
    return [line for line in lines if line.startswith("processor")]


if __name__ == "__main__":
    sys.exit(main())
