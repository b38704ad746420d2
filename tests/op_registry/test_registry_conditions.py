"""What the conditions of rules say of a node."""

from __future__ import annotations

from typing import Any

import pytest
from onnx import TensorProto, helper

from op_registry.ask import Ask
from op_registry.conditions import graph_holds, holds, parse_condition
from op_registry.graph import Node, Scope, attribute_bytes

GRAPH = helper.make_graph(
    [],
    "g",
    [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, "n", 4]),
        helper.make_tensor_value_info("free", TensorProto.INT64, None),
    ],
    [],
    [
        helper.make_tensor("axes", TensorProto.INT64, [2], [1, -1]),
        helper.make_tensor("k", TensorProto.INT64, [], [7]),
        helper.make_tensor("big", TensorProto.FLOAT, [100], [0.0] * 100),
    ],
)


def node(**attributes: Any) -> Node:
    proto = helper.make_node("Op", ["x", "axes", "", "k", "big", "computed", "free"], ["y", "", "z"], **attributes)
    return Node(proto, Scope(None, GRAPH))


@pytest.mark.parametrize(
    "text",
    [
        "attr a is 1 3", "attr a not 4", "attr a present", "attr b missing", "attr a > 2", "attr a < 4", "attr a odd",
        "attr f > 0.4 and attr f < 0.6", "attr f is 0.5", "attr s is LEFT", "attr l any 5", "attr l length 3",
        "attr l length-not 2", "attr l odd-length", "attr l max > 4", "attr l product > 29", "attr l not 7",
        "attr l < 3",
        "inputs > 6", "outputs > 2", "input 0 present", "input 2 missing", "input 9 missing", "input 1 constant",
        "input 5 variable", "input 1 is -1", "input 3 > 6", "input 3 is 7", "output 2 present", "dtype 0 is float32",
        "dtype 1 not float32", "rank 0 is 3", "rank 1 not 2", "attr t present",
    ],
)  # fmt: skip
def test_a_clause_is_true_of_the_node_that_it_describes(text: str) -> None:
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [0.0])
    described = node(a=3, f=0.5, s="LEFT", l=[2, 3, 5], t=tensor)
    assert holds(parse_condition(text), described)


@pytest.mark.parametrize(
    "text",
    [
        "attr b is 1", "attr b not 1", "attr b > 0", "attr a is 4", "attr a not 3", "attr l any 7", "attr s > 3",
        "attr t is 1",
        "input 2 present", "input 2 constant", "input 2 variable", "input 4 > -1", "input 5 is 1", "output 1 present",
        "dtype 5 not float32", "dtype 9 is float32", "rank 5 not 3", "rank 6 not 3", "attr s odd", "attr a odd-length",
    ],
)  # fmt: skip
def test_what_is_not_known_makes_a_clause_false(text: str) -> None:
    tensor = helper.make_tensor("t", TensorProto.FLOAT, [1], [0.0])
    assert not holds(parse_condition(text), node(a=3, f=0.5, s="LEFT", l=[2, 3, 5], t=tensor))


def test_all_clauses_must_hold() -> None:
    assert holds(parse_condition("attr a is 3 and inputs > 1"), node(a=3))
    assert not holds(parse_condition("attr a is 3 and inputs > 9"), node(a=3))


def test_facts_of_a_graph_are_numbers() -> None:
    facts = {"imports": 2, "plain-nodes": 3}
    assert graph_holds(parse_condition("graph imports > 1 and graph plain-nodes is 3"), lambda name: facts[name])
    assert not graph_holds(parse_condition("graph imports > 2"), lambda name: facts[name])


def test_the_bytes_of_attributes_are_equal_where_and_only_where_attributes_are() -> None:
    def made(name: str, **attributes: Any) -> bytes:
        made = helper.make_node("Conv", ["a" * 300, "w"], [name], name=name, doc_string="d", domain="x", **attributes)
        entry = made.metadata_props.add()
        entry.key, entry.value = "key", name
        return attribute_bytes(made)

    one = made("first", kernel_shape=[3, 3], pads=[1] * 100)
    assert one == made("second", kernel_shape=[3, 3], pads=[1] * 100)
    assert one != made("first", kernel_shape=[3, 3], pads=[2] * 100)
    assert made("none") == b""


def test_a_constant_node_is_a_constant_and_its_value_is_read() -> None:
    scope = Scope(None, GRAPH)
    scope.constants["c"] = helper.make_node("Constant", [], ["c"], value_ints=[4, 5])
    described = Node(helper.make_node("Op", ["c"], ["y"]), scope)
    assert holds(parse_condition("input 0 constant and input 0 is 5"), described)


def test_a_body_sees_the_values_of_its_outer_graph() -> None:
    inner = Scope(Scope(None, GRAPH), helper.make_graph([], "body", [], []))
    described = Node(helper.make_node("Op", ["x", "axes"], ["y"]), inner)
    assert holds(parse_condition("dtype 0 is float32 and rank 0 is 3 and input 1 constant"), described)


def test_ask_has_the_answer_for_equal_nodes_ready() -> None:
    from op_registry.support import load_support
    from op_registry.verdict import verdict

    ask = Ask(verdict(load_support("ascend", "9.2"), ("", "Mod"), 17, "Ascend910B"), set(), casts=False)
    first = ask.look(helper.make_node("Mod", ["a", "b"], ["y"], fmod=1), Scope())
    assert ask.look(helper.make_node("Mod", ["c", "d"], ["z"], name="other", fmod=1), Scope()) is first
    assert ask.look(helper.make_node("Mod", ["c", "d"], ["z"], fmod=0), Scope()) == ()
