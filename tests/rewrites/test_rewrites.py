"""Every rewrite of the table: where it applies, where it must not, and on random graphs."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import rewrite_cases
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from convert.errors import ExportError
from convert.rewrites import RULES, load_rule, rewrite
from convert.rewrites.prove import prove

CASES = {case.name.partition(":")[0]: case for case in rewrite_cases.CASES}
MAY_FIND_NOTHING = ("resize-half-pixel",)
"""Rewrites that rightly pass over some of the graphs drawn."""
TEXTUAL = sorted(set(RULES) - {"imports", "tie-weights", "weights-not-inputs"})


def test_every_rewrite_has_a_case() -> None:
    assert sorted(CASES) == sorted(RULES)


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rewrite_declares_its_name_and_what_it_avoids(name: str) -> None:
    rule = load_rule(name)
    assert rule.name == name
    assert rule.title and rule.avoids


@pytest.mark.parametrize("name", sorted(RULES))
def test_the_reference_names_it_with_its_title(name: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "rewrites.md").read_text(encoding="utf-8")
    assert f"| `{name}` | {load_rule(name).title}" in page


@pytest.mark.parametrize("name", sorted(RULES))
def test_it_applies_where_it_should(name: str) -> None:
    case = CASES[name]
    before = rewrite_cases.prepared(case, case.applies)
    content = before.SerializeToString()
    result = rewrite(before, [case.name])
    assert [applied.name for applied in result.applied] == [name], result.undone
    assert result.applied[0].nodes
    assert result.applied[0].evidence["runtime"].startswith("onnxruntime")
    onnx.checker.check_model(result.model, full_check=True)
    assert before.SerializeToString() == content


@pytest.mark.parametrize("name", TEXTUAL)
def test_it_leaves_alone_what_it_must_not_touch(name: str) -> None:
    case = CASES[name]
    before = rewrite_cases.graph(case.not_there, rewrite_cases.NEWER.get(name, 20))
    if name == "node-names":
        before.graph.node[0].name = "n"
    elif name == "sort-nodes":
        assert len(before.graph.node) == 1
    result = rewrite(before, [case.name])
    assert result.applied == () and result.undone == ()
    assert result.model == before


@pytest.mark.parametrize("name", ["imports", "tie-weights", "weights-not-inputs"])
def test_it_does_nothing_to_a_graph_without_its_fault(name: str) -> None:
    before = rewrite_cases.graph(rewrite_cases.RELU)
    assert rewrite(before, [name]).applied == ()


@pytest.mark.parametrize("name", sorted(RULES))
@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_random_graphs_keep_their_numbers(name: str, data: st.DataObject) -> None:
    case = CASES[name]
    before = rewrite_cases.prepared(case, case.draw(data.draw))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        result = rewrite(before, [case.name])
    assert result.undone == ()
    assert result.applied or name in MAY_FIND_NOTHING
    if result.applied and "before" not in result.applied[0].evidence:
        assert result.applied[0].evidence["inputs"] == 2


def test_several_rewrites_are_applied_in_order() -> None:
    before = rewrite_cases.graph("(float[N,4] x) => (float[N,4] y) { y = Gelu(h) h = Mish(x) }")
    result = rewrite(before, ["sort-nodes", "mish-to-softplus", "gelu-to-primitives"])
    assert [applied.name for applied in result.applied] == ["sort-nodes", "mish-to-softplus", "gelu-to-primitives"]
    assert {node.op_type for node in result.model.graph.node}.isdisjoint({"Gelu", "Mish"})


def test_a_mask_that_covers_a_whole_row_is_proven_on_the_sample_and_undone() -> None:
    """With every key masked, -1e9 swallows the scores in float32 and -60000 does not."""
    text = (
        "(float[2,4] x) => (float[2,4] y) <float[4] n = {-1e9,-1e9,-1e9,-1e9}> "
        "{ m = Add(x, n) y = Softmax<axis = -1>(m) }"
    )
    before = rewrite_cases.graph(text)
    sample = {"x": np.array([[0, 1, 2, 3], [3, 2, 1, 0]], dtype=np.float32)}
    result = rewrite(before, ["fp16-masks"], samples=[sample])
    assert result.applied == ()
    assert "differ" in result.undone[0].reason
    assert result.model == before


def test_a_difference_is_told_with_its_size() -> None:
    one = rewrite_cases.graph("(float[4] x) => (float[4] y) { y = Abs(x) }")
    other = rewrite_cases.graph("(float[4] x) => (float[4] y) { y = Neg(x) }")
    evidence, problem = prove(one, other, [], "")
    assert problem.startswith("output 0: numbers differ by up to")
    assert evidence["inputs"] == 0


def test_what_runs_on_no_input_is_not_proven() -> None:
    text = "(float[2,3] x, float[4,5] z) => (float[2,5] y) { h = Identity(x) y = MatMul(h, z) }"
    result = rewrite(rewrite_cases.graph(text), ["drop-identities"])
    assert result.applied == ()
    assert result.undone[0].name == "drop-identities"


def test_samples_decide_where_random_inputs_do_not_run() -> None:
    text = "(float[4] x, int64[2] s) => (float[A,B] y) { h = Identity(x) y = Reshape(h, s) }"
    before = rewrite_cases.graph(text)
    assert rewrite(before, ["drop-identities"]).applied == ()
    sample = {"x": np.arange(4, dtype=np.float32), "s": np.array([2, 2])}
    assert rewrite(before, ["drop-identities"], samples=[sample]).applied[0].evidence["inputs"] == 1


def test_an_unknown_rewrite_is_refused_by_name() -> None:
    with pytest.raises(ExportError, match="no rewrite 'nothing'") as error:
        rewrite(rewrite_cases.graph(rewrite_cases.RELU), ["nothing"])
    assert error.value.code == "CNV-4111"


@pytest.mark.parametrize("argument", ["N", "N=", "N=0", "N=-1", "=3", "N=x"])
def test_an_unreadable_size_is_refused(argument: str) -> None:
    with pytest.raises(ExportError, match="fix-dims") as error:
        rewrite(rewrite_cases.graph(rewrite_cases.RELU), [f"fix-dims:{argument}"])
    assert error.value.code == "CNV-4112"
