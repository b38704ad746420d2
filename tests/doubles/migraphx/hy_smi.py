"""A stand-in for ``hy-smi``: its table, ``--showproductname --json``, and what it says of other questions."""

import json
import os
import sys

SERIES = {"gfx936": "BW", "gfx928": "K100_AI", "gfx926": "K100", "gfx906": "Z100"}
LINE = "=" * 86
arch = os.environ.get("MIGRAPHX_DOUBLE_ARCH", "")
if arch not in SERIES:
    print("ERROR:root:Driver not initialized (hydcu not found in modules)")
elif sys.argv[1:] == ["--showproductname", "--json"]:
    print("WARNING: made up")
    print(json.dumps({"card0": {"Card Series": SERIES[arch], "Card Vendor": "C-3000 IC Design Co., Ltd."}}))
elif not sys.argv[1:]:
    print(f"{'=' * 28} System Management Interface {'=' * 29}\n{LINE}")
    print("HCU     Temp     AvgPwr     Perf     PwrCap     VRAM%      HCU%      Mode")
    print("0       50.0C    80.0W      auto     1000.0W    0%         0.0%      Normal")
    print(f"{LINE}\n{'=' * 35} End of SMI Log {'=' * 35}")
