"""A stand-in for npu-smi: one card of ACL_DOUBLE_SOC, in the shape that NPU_SMI_SHAPE asks for (table, a3, none)."""

from __future__ import annotations

import os
import sys

SOC = os.environ.get("ACL_DOUBLE_SOC", "")
NAME = SOC.removeprefix("Ascend")


def main() -> int:
    if not SOC:
        sys.stdout.write(
            "DrvMngGetConsoleLogLevel failed. (g_conLogLevel=3)\ndcmi module initialize failed. ret is -8005\n"
        )
        return 0
    short = "Ascend910" if NAME.startswith("910_") else NAME
    if "board" in sys.argv:
        sys.stdout.write(
            f"    NPU ID : 0\n    Chip Type : Ascend\n    Chip Name : {'Ascend910' if '_' in NAME else NAME}\n"
        )
        if "_" in NAME:
            sys.stdout.write(f"    NPU Name : {NAME.partition('_')[2]}\n")
        return 0
    rule = "+" + "-" * 98 + "+\n"
    sys.stdout.write(
        rule
        + "| npu-smi 24.1.0                   Version: 24.1.0                                               |\n"
        + "| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|\n"
        + "| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |\n"
        + f"| 0     {short:<19} | OK            | 90.7        37                0    / 0             |\n"
        + "| 0                         | 0000:C1:00.0  | 7           0    / 0          53984/ 65536         |\n"
        + rule
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
