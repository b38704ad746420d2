"""Type inference of onnx: what would end the process is kept out of its sight, and comes back once it is safe."""

from __future__ import annotations

import onnx
import pytest
from onnx import TensorProto, helper, parser

from convert.lowering.inference import FRAGILE, infer

ENDING = {
    "text without a type": ('"" : 20', "", 'y = RegexFullMatch <pattern = "a"> (nothing)'),
    "matrix without a type": ('"" : 9', "", "y = EyeLike <dtype = 7> (nothing)"),
    "two outputs out of one": ('"" : 18', "float[4] x", "y, z = Split <num_outputs = 1> (x)"),
    "axis of 32 bits": ('"" : 17', "float[3] x, float[3] w", "y = LayerNormalization <axis = 2147483648> (x, w)"),
    "indices below zero": ('"" : 13', "int32[2] x, int64[-1] i", "y = GatherND (x, i)"),
    "batches below zero": ('"" : 13', "int32[2,3] x, int64[2,2] i", "y = GatherND <batch_dims = -3> (x, i)"),
    "labels without a type": ('"" : 20, "ai.onnx.ml" : 2', "", "y = ai.onnx.ml.LabelEncoder (nothing)"),
    "table without a type": ('"" : 20, "ai.onnx.ml" : 1', "", "y = ai.onnx.ml.DictVectorizer (nothing)"),
    "trees without an attribute": ('"" : 20, "ai.onnx.ml" : 5', "", "y = ai.onnx.ml.TreeEnsemble (nothing)"),
}


def model_of(opsets: str, inputs: str, body: str) -> onnx.ModelProto:
    return parser.parse_model(f"<ir_version: 9, opset_import: [{opsets}]> g ({inputs}) => () {{ {body} }}")


def types_of(model: onnx.ModelProto) -> dict[str, int]:
    values = (*model.graph.value_info, *model.graph.output)
    return {value.name: value.type.tensor_type.elem_type for value in values}


@pytest.mark.parametrize("what", ENDING)
def test_a_node_that_would_end_the_process_only_stays_without_a_type(what: str) -> None:
    model = model_of(*ENDING[what])
    before = model.SerializeToString(deterministic=True)
    inferred = infer(model)
    assert "y" not in types_of(inferred)
    assert model.SerializeToString(deterministic=True) == before
    assert [node.op_type for node in inferred.graph.node] == [node.op_type for node in model.graph.node]


def test_every_operator_that_is_kept_out_of_sight_has_a_case() -> None:
    assert {model_of(*case).graph.node[0].op_type for case in ENDING.values()} == set(FRAGILE)


def test_a_sound_chain_of_such_nodes_has_all_its_types() -> None:
    body = """
        a = EyeLike <dtype = 1> (x)
        b = EyeLike <dtype = 7> (a)
        c = GatherND (a, i)
        d, e = Split <num_outputs = 2> (c)
        f = LayerNormalization <axis = -1> (d, w)
    """
    found = types_of(infer(model_of('"" : 18', "float[4,4] x, int64[6,1] i, float[4] w", body)))
    assert found == {name: TensorProto.INT64 if name == "b" else TensorProto.FLOAT for name in "abcdef"}


def test_a_name_of_a_body_is_not_taken_for_one_around_it() -> None:
    inner = helper.make_graph(
        [helper.make_node("Nothing", [], ["x"]), helper.make_node("EyeLike", ["x"], ["o"])],
        "body",
        [],
        [helper.make_tensor_value_info("o", TensorProto.FLOAT, None)],
    )
    node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner)
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 2]),
    ]
    model = helper.make_model(helper.make_graph([node], "g", inputs, []), opset_imports=[helper.make_opsetid("", 18)])
    inferred = infer(model)
    body = inferred.graph.node[0].attribute[0].g
    assert [one.op_type for one in body.node] == ["Nothing", "EyeLike"]


def test_the_real_name_of_an_operator_is_never_changed() -> None:
    model = model_of('"" : 20', "", "a = EyeLike (nothing)")
    model.graph.node.append(helper.make_node("EyeLike?", ["a"], ["b"]))
    assert [node.op_type for node in infer(model).graph.node] == ["EyeLike", "EyeLike?"]
