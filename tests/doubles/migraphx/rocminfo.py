"""A stand-in for ``rocminfo``: a CPU agent and the card of MIGRAPHX_DOUBLE_ARCH, or what it says without a driver."""

import os
import sys

NAMES = {"gfx90a": "AMD Instinct MI210", "gfx942": "AMD Instinct MI300X", "gfx936": "BW1000", "gfx906": "Z100"}
arch = os.environ.get("MIGRAPHX_DOUBLE_ARCH", "")
if not arch:
    print("\x1b[31mROCk module is NOT loaded, possibly no GPU devices\x1b[0m")
    sys.exit(1)
print("=====================\nHSA Agents\n=====================")
for number, (name, market, kind) in enumerate(
    [("AMD EPYC 7003", "AMD EPYC 7003", "CPU"), (arch, NAMES.get(arch, ""), "GPU")], 1
):
    print(f"*******\nAgent {number}\n*******")
    print(f"  Name:                    {name}")
    print(f"  Marketing Name:          {market}")
    print(f"  Device Type:             {kind}")
    if kind == "GPU":
        print("  ISA Info:\n    ISA 1")
        print(f"      Name:                    amdgcn-amd-amdhsa--{arch}:sramecc+:xnack-")
print("*** Done ***")
