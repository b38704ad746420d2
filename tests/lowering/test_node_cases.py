"""Every node case of ``onnx.backend.test`` that lowers gives its expected outputs; none comes out wrong."""

from __future__ import annotations

import node_cases
import pytest

from convert.lowering import LoweringRefused, lower

STRIDE = 14
REFUSED_AT_MOST = {11: 261, 13: 220, 16: 209, 17: 208, 18: 197}
"""Cases refused at each target, of all; more would be a step back."""


def states(target: int, cases: tuple[node_cases.TestCase, ...]) -> tuple[list[str], int]:
    """What is wrong with the cases at a target, and how many are refused."""
    wrong, refused = [], 0
    for case in cases:
        try:
            result = node_cases.judge(case, target, lower)
        except LoweringRefused as refusal:
            refused += 1
            if not all(r.op and r.node and r.reason for r in refusal.refusals):
                wrong.append(f"{case.name}: a refusal without a name")
            continue
        if result.state != "right":
            wrong.append(f"{case.name}: {result.state}: {result.text}")
    return wrong, refused


@pytest.mark.parametrize("target", node_cases.TARGETS)
def test_no_sampled_case_comes_out_wrong(target: int) -> None:
    offset = node_cases.TARGETS.index(target)
    cases = node_cases.all_cases()[offset::STRIDE]
    wrong, refused = states(target, cases)
    assert wrong == []
    assert refused <= len(cases) // 4


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", node_cases.TARGETS)
def test_no_case_comes_out_wrong(target: int) -> None:
    wrong, refused = states(target, node_cases.all_cases())
    assert wrong == []
    assert refused <= REFUSED_AT_MOST[target]
