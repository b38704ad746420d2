"""When a conversion asks the toolkit for its own word on the operators, and what becomes of that word."""

from __future__ import annotations

import os

import pytest
from atc_kit import IMAGE, model_of, options_for
from install import install_cann

from convert.backends.atc.precheck import PreCheck
from convert.backends.base import Missing, Toolchain
from convert.errors import CompileFailed
from convert.request import Request
from convert.stages.precheck import precheck_graph
from convert.target_options import worth_asking
from convert.values import CheckedGraph, LoadOptions, Support
from op_registry.values import Judged

HERE = Toolchain(name="CANN", version="8.5.0")
UNKNOWN = Judged(op="Odd", node="/layer/of_Det", state="unknown", grade="read", reason="", source="")


def checked_with(*judged: Judged, parent: str = "sha256:" + "1" * 64) -> CheckedGraph:
    support = Support(supported=True, nodes=3, opset=17, judged=judged)
    return CheckedGraph(parent=parent, target="Ascend310P3", support=support)


def asks(checked: CheckedGraph, found: Toolchain | Missing, answer: str = "", until: str = "publish") -> bool:
    options = {"precheck": answer} if answer else {}
    request = Request(load=LoadOptions(path="m.onnx"), targets=("Ascend310P3",), options=options, until=until)
    return worth_asking(request, checked, found)


@pytest.mark.parametrize(
    ("judged", "answer", "asked"),
    [
        ((), "", False),
        ((UNKNOWN,), "", True),
        ((UNKNOWN,), "auto", True),
        ((UNKNOWN,), "no", False),
        ((), "yes", True),
    ],
)
def test_the_toolkit_is_asked_where_something_is_unknown_or_it_is_wanted(judged, answer, asked):
    assert asks(checked_with(*judged), HERE, answer) is asked


def test_without_a_toolkit_or_for_a_plan_alone_nobody_is_asked():
    assert not asks(checked_with(UNKNOWN), Missing(name="CANN", reason="", hint=""))
    assert not asks(checked_with(UNKNOWN), HERE, "yes", until="plan")


@pytest.fixture
def toolkit(tmp_path, monkeypatch):
    for name, value in install_cann(tmp_path / "cann", "8.5.0", soc="Ascend310P3").items():
        monkeypatch.setenv(name, value)
    assert os.environ["ASCEND_HOME_PATH"]


def test_what_the_toolkit_refuses_stands_with_its_module(toolkit, graph_of, tmp_path):
    model = model_of(IMAGE, ops=["Det"])
    model.graph.node[1].name = "/layer/of_Det"
    graph = graph_of(model)
    checked = checked_with(UNKNOWN, parent=graph.digest)
    asked = precheck_graph(graph, checked, options_for("Ascend310P3"), tmp_path / "asked")
    (refused,) = asked.support.judged
    assert (refused.node, refused.module, refused.state) == ("/layer/of_Det", "layer", "refused")
    assert refused.source == "atc --mode=3 of CANN 8.5.0"
    assert not asked.support.supported


def test_a_toolkit_that_answers_nothing_is_told(toolkit, graph_of, tmp_path, monkeypatch):
    silent = PreCheck(failure="atc --mode=3 ended with exit code 255 and left no check_result.json")
    monkeypatch.setattr("convert.backends.atc.backend.precheck", lambda *args: silent)
    graph = graph_of(model_of(IMAGE))
    with pytest.raises(CompileFailed, match="exit code 255") as failure:
        precheck_graph(graph, checked_with(parent=graph.digest), options_for("Ascend310P3"), tmp_path / "asked")
    assert failure.value.code == "CNV-7301"
