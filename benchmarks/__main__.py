"""``make bench``: a table of ratios for each part, on standard output. Names of parts as arguments run those alone."""

from __future__ import annotations

import importlib
import sys

from benchmarks.measure import table

PARTS = {
    "main_job": "The main job",
    "memory": "Peak memory of a 3 GB model, stage by stage",
    "registry": "The operator support registry",
    "lowering": "Opset lowering, beside onnx's own converter",
    "flows": "What a flow adds to the direct call",
    "precision": "The forecast beside one inference, and the mixed plan beside auto_mixed_precision",
}


def main() -> int:
    """Run the parts and print their tables; 1 where a bound doesn't hold."""
    wanted = sys.argv[1:] or list(PARTS)
    held = True
    for name in wanted:
        rows = importlib.import_module(f"benchmarks.{name}").rows()
        print(table(PARTS[name], rows), flush=True)
        held = held and all(row.holds for row in rows)
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
