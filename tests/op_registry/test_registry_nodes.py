"""Every node case of onnx through every vendor's table, and what ONNX Runtime itself says of them."""

from __future__ import annotations

import warnings
from functools import lru_cache
from typing import Any

import pytest

from op_registry.judge import judge_model
from op_registry.support import installed_onnxruntime
from op_registry.targets import all_targets, find_target
from op_registry.values import GRADES, STATES
from op_registry.vendors import all_vendors, known_versions

DIFFERENT = {
    "test_range_bfloat16_type_positive_delta": "has a kernel without bfloat16, and is expanded instead",
    "test_strnormalizer_export_monday_casesensintive_lower": "needs a locale that the machine may lack",
    "test_strnormalizer_export_monday_casesensintive_upper": "needs a locale that the machine may lack",
    "test_strnormalizer_export_monday_empty_output": "needs a locale that the machine may lack",
    "test_strnormalizer_export_monday_insensintive_upper_twodim": "needs a locale that the machine may lack",
}


@lru_cache(maxsize=1)
def node_cases() -> list[Any]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return list(collect_testcases(None))


def asked() -> list[tuple[str, str]]:
    firsts = {}
    for target in all_targets():
        firsts.setdefault(target.vendor, target.name)
    versions = {name: known_versions(all_vendors()[name]) for name in firsts}
    return [(firsts[name], version) for name in firsts for version in versions[name][-3:]]


@pytest.mark.parametrize(("target", "version"), asked())
def test_every_node_case_is_judged_without_a_fault(target: str, version: str) -> None:
    card = find_target(target)
    for case in node_cases():
        found = judge_model(case.model, card, toolchain_version=version)
        assert found.nodes >= len(case.model.graph.node)
        assert sum(found.counts.values()) == found.nodes
        for one in found.judged:
            assert one.state in STATES
            assert one.grade in GRADES
            assert one.reason
            assert one.source


def test_there_are_all_the_node_cases() -> None:
    assert len(node_cases()) >= 1800


@pytest.mark.skipif(installed_onnxruntime() != "1.32.0", reason="measured with ONNX Runtime 1.32.0")
@pytest.mark.parametrize("part", range(8))
def test_onnx_runtime_takes_exactly_the_node_cases_that_its_table_takes(part: int) -> None:
    import onnxruntime
    from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, InvalidGraph, NotImplemented

    onnxruntime.set_default_logger_severity(4)
    cpu = find_target("cpu")
    wrong = []
    for case in node_cases()[part::8]:
        try:
            onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])
            taken = True
        except (Fail, InvalidArgument, InvalidGraph, NotImplemented):
            taken = False
        if judge_model(case.model, cpu).supported != taken and case.name not in DIFFERENT:
            wrong.append((case.name, taken))
    assert wrong == []
