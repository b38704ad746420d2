"""How many node cases come out right at other opsets: ours beside onnx's own converter; and what a big graph costs.

python benchmarks/lowering.py               print the tables
python benchmarks/lowering.py --every 6     every sixth case only
python benchmarks/lowering.py --write       and put them into docs/reference/lowering.md
"""

from __future__ import annotations

import argparse
import collections
import logging
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "lowering")]

import node_cases  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402

from benchmarks.measure import Row  # noqa: E402
from convert.lowering import LoweringRefused, lower  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "lowering.md"
BEGIN, END = "<!-- scores -->", "<!-- /scores -->"
Convert = Callable[[onnx.ModelProto, int], onnx.ModelProto]
CONVERTERS: dict[str, Convert] = {"lower": lower, "onnx.version_converter": onnx.version_converter.convert_version}
SAMPLED = 6
STATES = ("right", "refused", "invalid", "wrong", "failed")


def main() -> None:
    """Measure, print, and write where asked to."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--no-export", action="store_true", help="leave out the comparison with torch's exporter")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    lines = score_table(options.every)
    if not options.no_export:
        proven, exported, text = cost()
        lines += [
            "",
            f"Lowering to opset 13 and proving it on ONNX Runtime: {proven / exported:.2f} of the export's time.",
            f"The graph: {text}.",
        ]
    text = "\n".join(lines)
    print(text)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        head, rest = page.split(BEGIN)
        PAGE.write_text(f"{head}{BEGIN}\n{text}\n{END}{rest.split(END)[1]}", encoding="utf-8")


def rows() -> list[Row]:
    """For ``make bench``: right cases beside onnx's converter on every sixth case, and the cost of a big graph."""
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    counts = scores(SAMPLED)
    found = []
    for target in node_cases.TARGETS:
        ours, base = (counts[target, name] for name in CONVERTERS)
        total = sum(ours.values())
        what = f"node cases right at opset {target}, of {total} ({ours['wrong']} wrong here, {base['wrong']} there)"
        found.append(Row(what=what, ours=ours["right"], base=base["right"], unit="cases"))
    proven, exported, text = cost()
    found.append(Row(what=f"lower to 13 and prove: {text}", ours=proven, base=exported, unit="s", bound=1.0))
    return found


def scores(every: int) -> dict[tuple[int, str], collections.Counter[str]]:
    """What becomes of every ``every``-th case, by target and converter."""
    cases = node_cases.all_cases()[::every]
    return {
        (target, name): collections.Counter(state_of(case, target, convert) for case in cases)
        for target in node_cases.TARGETS
        for name, convert in CONVERTERS.items()
    }


def score_table(every: int) -> list[str]:
    """One line per target and converter."""
    counts = scores(every)
    total = sum(next(iter(counts.values())).values())
    header = " | ".join(["opset", "converter", "cases", *STATES, "right, %"])
    lines = [f"onnx {onnx.__version__}, {total} node cases", "", f"| {header} |", "|" + " --- |" * 9]
    for (target, name), count in counts.items():
        cells = [str(target), name, str(total), *(str(count[state]) for state in STATES)]
        lines.append(f"| {' | '.join(cells)} | {100 * count['right'] / total:.1f} |")
    return lines


def state_of(case: node_cases.TestCase, target: int, convert: Convert) -> str:
    """What becomes of one case; whatever a converter raises counts as refused."""
    try:
        return node_cases.judge(case, target, convert).state
    except (LoweringRefused, RuntimeError, onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return "refused"


def cost() -> tuple[float, float, str]:
    """Seconds to lower and prove a graph of 5,000 nodes, seconds to export it, and the sizes in words."""
    import torch

    class Block(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.LayerNorm(16), torch.nn.Linear(16, 16), torch.nn.GELU())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 0.05 * self.inner(x)

    torch.manual_seed(0)
    module, sample = torch.nn.Sequential(*(Block() for _ in range(1000))).eval(), torch.randn(2, 16)
    start = time.perf_counter()
    program = torch.onnx.export(module, (sample,), dynamo=True, opset_version=20, verbose=False)
    exported = time.perf_counter() - start
    model = program.model_proto
    start = time.perf_counter()
    lowered = lower(model, 13)
    feeds = [np.asarray(sample)]
    before, after = (node_cases.run_ort(graph, feeds)[0] for graph in (model, lowered))
    assert np.allclose(before, after, rtol=1e-3, atol=1e-5)
    proven = time.perf_counter() - start
    return proven, exported, f"{len(model.graph.node)} nodes become {len(lowered.graph.node)}"


if __name__ == "__main__":
    main()
