#!/usr/bin/env -S python3 -I -S
"""A strict stand-in for the vendors' card tools; the name it is started by says which one it is.

    DOUBLE_CARDS   which machine: a folder or .json of outputs/<tool>/; without it the tool finds no card
    DOUBLE_FAULT   hang (with a child), crash, flood, garbage, empty

It takes the calls that the real tool takes, and refuses others with that tool's text and exit code. Odd habits kept:
rocm-smi ends with 0 without a driver and prints warnings before its JSON; an older nvidia-smi refuses a whole query for
one unknown field.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

OUTPUTS = Path(__file__).resolve().parent / "outputs"
CALLS = {
    "npu-smi": {"info": "info", "info -l": "list", "info -m": "map"},
    "cnmon": {"": "table", "info": "info", "version": "version"},
    "hy-smi": {
        "": "table",
        "--showproductname --json": "product",
        "--showmeminfo vram --json": "memory",
        "--showdriverversion": "driver",
    },
    "rocm-smi": {
        "": "table",
        "--showproductname --json": "product",
        "--showmeminfo vram --json": "memory",
        "--showdriverversion": "driver",
        "--showproductname --showmeminfo vram --showdriverversion --json": "all",
    },
    "amd-smi": {"static --asic --bus --vram --json": "static"},
    "rocminfo": {"": "agents"},
    "mx-smi": {"": "table", "-L": "list"},
}
NO_CARD = {
    "npu-smi": ("dcmi module initialize failed. ret is -8005\n", 1),
    "cnmon": ("Error: no MLU device found, please check the driver\n", 1),
    "hy-smi": ("ERROR:root:Driver not initialized (hydcu not found in modules)\n", 0),
    "rocm-smi": ("ERROR:root:Driver not initialized (amdgpu not found in modules)\n", 0),
    "amd-smi": ("ERROR: Unable to detect any GPU devices, check amdgpu version and module status\n", 255),
    "rocminfo": ("\x1b[31mROCk module is NOT loaded, possibly no GPU devices\x1b[0m\n", 1),
    "mx-smi": ("mx-smi  version: 2.2.9\nAttached GPUs                                     : 0\n", 1),
    "nvidia-smi": ("No devices were found\n", 6),
    "ixsmi": ("No devices were found\n", 6),
}
USAGE = {
    "npu-smi": ('Error parameter of type. Use "npu-smi -h" for help.\n', 255),
    "amd-smi": ("Command is invalid. Run 'amd-smi -h' for more info.\n", 2),
}
FIELDS = {"index", "name", "uuid", "pci.bus_id", "driver_version", "memory.total", "compute_cap",
          "ecc.errors.uncorrected.volatile.total", "mig.mode.current"}  # fmt: skip
IX_FIELDS = {"index", "name", "uuid", "pci.bus_id", "driver_version", "memory.total"}


def main() -> int:
    tool, arguments = Path(sys.argv[0]).name, sys.argv[1:]
    fault(os.environ.get("DOUBLE_FAULT", ""))
    machine = machine_of(tool)
    if machine is None:
        return say(*NO_CARD[tool])
    if tool in ("nvidia-smi", "ixsmi"):
        return query(tool, arguments, json.loads(machine.read_text()))
    call = CALLS[tool].get(" ".join(arguments))
    if tool == "npu-smi" and arguments[:3] == ["info", "-t", "board"] and len(arguments) == 7:
        call = f"board-{arguments[4]}-{arguments[6]}"
    path = machine / f"{call}.txt"
    if call is None or not path.is_file():
        return say(*USAGE.get(tool, (f"usage: {tool} [-h]\n{tool}: error: unrecognized arguments\n", 2)))
    return say(path.read_text(), 0)


def machine_of(tool: str) -> Path | None:
    """The recorded answers of this tool on the machine, or None where the machine has no such card."""
    for name in filter(None, os.environ.get("DOUBLE_CARDS", "").split(",")):
        for path in (OUTPUTS / tool / name, OUTPUTS / tool / f"{name}.json"):
            if path.exists():
                return path
    return None


def query(tool: str, arguments: list[str], rows: list[dict[str, str]]) -> int:
    """``--query-gpu=FIELDS --format=csv,noheader[,nounits]``, the whole question refused for one unknown field."""
    if len(arguments) != 2 or not arguments[0].startswith("--query-gpu="):
        return say("Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n", 2)
    fields = arguments[0].partition("=")[2].split(",")
    known = IX_FIELDS if tool == "ixsmi" else FIELDS
    if rows and int(rows[0]["driver_version"].partition(".")[0]) < 510:
        known = known - {"compute_cap"}
    for field in fields:
        if field not in known:
            return say(f'Field "{field}" is not a valid field to query.\n', 2)
    plain = arguments[1].endswith(",nounits")
    lines = []
    for row in rows:
        cells = [row.get(field, "[N/A]") for field in fields]
        lines.append(", ".join(cell.removesuffix(" MiB") if plain else cell for cell in cells))
    return say("\n".join(lines) + "\n", 0)


def fault(kind: str) -> None:
    if kind == "hang":
        subprocess.Popen(["sleep", "600"])
        time.sleep(600)
    elif kind == "crash":
        os.abort()
    elif kind == "flood":
        for _ in range(200):
            sys.stdout.write("| 0 |" * 20000 + "\n")
        sys.exit(0)
    elif kind == "garbage":
        sys.stdout.buffer.write(bytes(range(256)) * 40 + b"\n{[[[[\n| 0     910B3\n{}\n[1, 2]\n")
        sys.exit(0)
    elif kind == "empty":
        sys.exit(0)


def say(text: str, code: int) -> int:
    sys.stdout.write(text)
    return code


if __name__ == "__main__":
    sys.exit(main())
