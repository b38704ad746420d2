"""A stand-in for ``hy-smi --showproductname --json``."""

import json
import os

SERIES = {"gfx936": "BW", "gfx928": "K100_AI", "gfx926": "K100", "gfx906": "Z100"}
arch = os.environ.get("MIGRAPHX_DOUBLE_ARCH", "")
print("WARNING: made up")
if arch in SERIES:
    print(json.dumps({"card0": {"Card Series": SERIES[arch], "Card Vendor": "C-3000 IC Design Co., Ltd."}}))
