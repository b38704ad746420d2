"""Further inputs of the kinds that the hard inputs have: the whole kind is mended, not the case.

Each is small and made here; those that need torch's exporters are converted in the workers of ``case_runner``.
"""

from __future__ import annotations

import functools
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
from case_runner import convert_case, torch_host
from click.testing import CliRunner
from onnx import TensorProto, helper, parser

from artifacts.cli import run_boundary
from convert.__main__ import cli
from convert.commands.diff import diff
from convert.errors import GateFailed, LoadError
from convert.host import StageHost
from convert.loading.sniff import identify
from convert.request import Request, as_json
from convert.values import ExportOptions, LoadOptions

SPECS = "x:float32[2,3]"


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StageHost]:
    with torch_host(tmp_path_factory.mktemp("further") / "workers.log") as running:
        yield running


# --------------------------------------------------------------------------------------------- what stands in its place


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b'{"error": "Invalid username or password."}', "a JSON document with a server's error"),
        (b'<?xml version="1.0"?>\n<Error><Code>AccessDenied</Code></Error>', "an XML document"),
        (b"Entry not found\n", "a server's answer"),
        (b'{"metadata": {}, "weight_map": {"w": "model-00001-of-00002.safetensors"}}', "model in several files"),
        (b'{\n "_name_or_path": "bert", "architectures": ["BertModel"]}', "configuration of a Hugging Face model"),
        (b'{"irVersion": "8", "graph": {}}', "an ONNX model in JSON"),
        (b'ir_version: 8\nproducer_name: "pytorch"\ngraph {\n}\n', "protobuf's text form"),
        (b'<\n  ir_version: 8,\n  opset_import: ["" : 17]\n>\n', "ONNX's text form"),
        (b"nc: 80\nbackbone:\n  - [-1, 1, Conv, [64, 3, 2]]\n", "a network in YAML"),
        (b"import torch\n\nclass Net(torch.nn.Module): pass\n", "Python source code"),
        (b"lmgg" + bytes(100), "a GGML model"),
    ],
)
def test_what_stands_in_a_models_place_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "model.pt"
    path.write_bytes(data)
    with pytest.raises(LoadError, match=said) as refused:
        identify(path)
    assert refused.value.hint


def test_data_files_beside_a_link_as_in_a_download_cache_are_told(tmp_path: Path) -> None:
    for name in ("blobs", "snapshot"):
        (tmp_path / name).mkdir()
    weights = onnx.numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    graph = parser.parse_graph("g (float[1,64] x) => (float[1,64] y) { y = MatMul(x, w) }")
    graph.initializer.append(weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    saved = tmp_path / "blobs" / "aa"
    onnx.save(model, saved, save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    (tmp_path / "blobs" / "model.onnx_data").rename(tmp_path / "blobs" / "bb")
    for link, blob in (("model.onnx", "aa"), ("model.onnx_data", "bb")):
        (tmp_path / "snapshot" / link).symlink_to(f"../blobs/{blob}")
    with pytest.raises(LoadError, match=r"model\.onnx_data") as refused:
        identify(tmp_path / "snapshot" / "model.onnx")
    assert "cp -L" in refused.value.hint


# ------------------------------------------------------------------------------------------------------------ graphs


def converted(host: StageHost, model: onnx.ModelProto, tmp_path: Path, **more: Any) -> Any:
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    load = LoadOptions(path=str(path), **more)
    return convert_case(host, Request(load=load, targets=("cpu",), publish=False), tmp_path / "places")


def said_of(conversion: Any) -> str:
    return msgspec.json.encode(as_json(conversion)).decode()


HEAD = '<ir_version: 8, opset_import: ["" : 17, "p" : 1]>\n'


def test_functions_that_call_each_other_in_a_circle_are_refused(host: StageHost, tmp_path: Path) -> None:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("p", 1)]
    graph = parser.parse_graph("g (float[2,3] x) => (float[2,3] y) { y = p.a(x) }")
    model = helper.make_model(graph, opset_imports=imports, ir_version=8)
    for name, other in (("a", "b"), ("b", "a")):
        node = helper.make_node(other, ["u"], ["v"], domain="p")
        model.functions.append(helper.make_function("p", name, ["u"], ["v"], [node], imports))
    conversion = converted(host, model, tmp_path)
    assert conversion.exit_code == 4
    assert "can't be inlined" in conversion.error["message"]


def test_statistics_among_the_outputs_of_an_old_batch_normalization_are_training_mode(
    host: StageHost, tmp_path: Path
) -> None:
    text = """g (float[2,3] x, float[3] s, float[3] b, float[3] m, float[3] v) => (float[2,3] y) {
        y, m2, v2, m3, v3 = BatchNormalization(x, s, b, m, v) }"""
    model = helper.make_model(parser.parse_graph(text), opset_imports=[helper.make_opsetid("", 9)], ir_version=5)
    conversion = converted(host, model, tmp_path)
    assert conversion.exit_code == 4
    assert "BatchNormalization" in conversion.error["message"]
    assert "training mode" in conversion.error["message"]


def branches(then_text: str) -> onnx.ModelProto:
    """A model with a condition whose first branch is given; the second is the input itself."""
    branch = parser.parse_graph(then_text)
    other = parser.parse_graph("e () => (float[2,3] o) { o = Identity(x) }")
    node = helper.make_node("If", ["c"], ["y"], name="if0", then_branch=branch, else_branch=other)
    values = [("x", TensorProto.FLOAT, [2, 3]), ("c", TensorProto.BOOL, [])]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(*value) for value in values],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_random_number_in_a_branch_that_the_samples_do_not_take_is_warned_of(host: StageHost, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", x=np.ones((2, 3), np.float32), c=np.array(False))
    model = branches("t () => (float[2,3] r) { r = RandomNormal <shape = [2, 3]> () }")
    conversion = converted(host, model, tmp_path, samples=str(tmp_path / "in.npz"))
    assert conversion.exit_code == 0, conversion.error
    assert "RandomNormal" in said_of(conversion)
    assert "draws random numbers" in said_of(conversion)


def test_nodes_out_of_order_in_a_branch_are_put_in_order(host: StageHost, tmp_path: Path) -> None:
    model = branches("t () => (float[2,3] r) { h = Neg(x) r = Relu(h) }")
    (body,) = (item.g for item in model.graph.node[0].attribute if item.name == "then_branch")
    first, second = list(body.node)
    del body.node[:]
    body.node.extend([second, first])
    np.savez(tmp_path / "in.npz", x=np.float32([[1, -2, 3], [4, -5, 6]]), c=np.array(True))
    conversion = converted(host, model, tmp_path, samples=str(tmp_path / "in.npz"))
    assert conversion.exit_code == 0, conversion.error
    assert "topological order" in said_of(conversion)


def test_samples_under_another_name_are_taken_for_the_only_input_and_that_is_told(
    host: StageHost, tmp_path: Path
) -> None:
    np.savez(tmp_path / "in.npz", image=np.ones((2, 3), np.float32))
    model = parser.parse_model(HEAD.replace(', "p" : 1', "") + "g (float[2,3] x) => (float[2,3] y) { y = Neg(x) }")
    conversion = converted(host, model, tmp_path, samples=str(tmp_path / "in.npz"))
    assert conversion.exit_code == 0, conversion.error
    assert "the samples call x image" in said_of(conversion)


# ------------------------------------------------------------------------------------------------------- torch's files

NETS = """
import torch
from torch import nn

class InPlace(nn.Module):
    def forward(self, x):
        x.mul_(2)
        return x + 1

class NoForward(nn.Module):
    def predict(self, x):
        return x
"""


def pickled(tmp_path: Path, name: str) -> Path:
    import importlib.util
    import sys

    import torch

    (tmp_path / "further_nets.py").write_text(NETS)
    spec = importlib.util.spec_from_file_location("further_nets", tmp_path / "further_nets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["further_nets"] = module
    try:
        spec.loader.exec_module(module)
        torch.save(getattr(module, name)(), tmp_path / "model.pt")
    finally:
        del sys.modules["further_nets"]
    return tmp_path / "model.pt"


def opened(host: StageHost, path: Path, tmp_path: Path, *inputs: str) -> Any:
    load = LoadOptions(path=str(path), inputs=inputs, allow_pickle=True)
    return convert_case(host, Request(load=load, targets=("cpu",), publish=False), tmp_path / "places")


def test_a_model_that_changes_its_input_in_place_is_not_taken_for_one_with_state(
    host: StageHost, tmp_path: Path
) -> None:
    conversion = opened(host, pickled(tmp_path, "InPlace"), tmp_path, SPECS)
    assert conversion.exit_code == 0, conversion.error
    assert conversion.targets[0].verdict.passed


def test_a_module_without_forward_is_refused_with_its_methods(host: StageHost, tmp_path: Path) -> None:
    conversion = opened(host, pickled(tmp_path, "NoForward"), tmp_path, SPECS)
    assert conversion.exit_code == 3
    assert "NoForward without forward(); its methods: predict()" in conversion.error["message"]


def test_a_class_of_the_main_script_is_told_as_such(host: StageHost, tmp_path: Path) -> None:
    path = pickled(tmp_path, "InPlace")
    renamed = tmp_path / "main.pt"
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(renamed, "w") as new:
        for member in old.namelist():
            data = old.read(member)
            new.writestr(member, data.replace(b"cfurther_nets\n", b"c__main__\n") if member.endswith(".pkl") else data)
    conversion = opened(host, renamed, tmp_path, SPECS)
    assert conversion.exit_code == 3
    assert "it uses __main__.InPlace" in conversion.error["message"]
    assert "convert.worker" not in conversion.error["message"]


@functools.cache
def dict_script_archive() -> bytes:
    """A script whose only argument is a dict of tensors; a process can define it once only."""
    import torch

    module = torch.jit.ScriptModule()
    module.define("def forward(self, feats: Dict[str, Tensor]) -> Tensor:\n    return feats['a'] - feats['b']\n")
    buffer = io.BytesIO()
    torch.jit.save(module, buffer)
    return buffer.getvalue()


def dict_script(folder: Path) -> LoadOptions:
    """That script, and a sample for it."""
    import torch

    (folder / "model.pt").write_bytes(dict_script_archive())
    torch.save((({"a": torch.ones(2, 3), "b": torch.rand(2, 3)},), {}), folder / "in.pt")
    return LoadOptions(path=str(folder / "model.pt"), samples=str(folder / "in.pt"))


def test_a_script_that_takes_a_dict_has_each_tensor_as_an_input(host: StageHost, tmp_path: Path) -> None:
    request = Request(load=dict_script(tmp_path), targets=("cpu",), publish=False)
    conversion = convert_case(host, request, tmp_path / "places")
    assert conversion.exit_code == 0, conversion.error
    stages = as_json(conversion)["targets"][0]["stages"]
    verdicts = next(stage["exporters"] for stage in stages if stage["stage"] == "export")
    assert [(one["exporter"], one["state"]) for one in verdicts][:2] == [
        ("torchscript", "failed"),
        ("dynamo (of the model as a program)", "chosen"),
    ]
    (onnx_file,) = (tmp_path / "places").rglob("cpu/*.onnx")
    session = onnxruntime.InferenceSession(onnx_file, providers=["CPUExecutionProvider"])
    assert [item.name for item in session.get_inputs()] == ["feats.a", "feats.b"]


def test_a_script_that_takes_a_dict_is_refused_by_name_where_only_torchscript_may_serve(
    host: StageHost, tmp_path: Path
) -> None:
    load, export = dict_script(tmp_path), ExportOptions(exporter="torchscript")
    request = Request(load=load, export=export, targets=("cpu",), publish=False)
    conversion = convert_case(host, request, tmp_path / "places")
    assert conversion.exit_code == 4
    assert "feats (Dict[str, Tensor])" in conversion.error["message"]


# ------------------------------------------------------------------------------------------------- two sets of outputs


@pytest.mark.parametrize(
    ("reference", "candidate", "said"),
    [
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}, "outputs swapped"),
        ({"a": 1}, {"a": -1}, "a sign fault"),
        ({"a": 1}, {"a": 0}, "the candidate is all zero"),
        ({"a": 0}, {"a": 1}, "the reference is all zero"),
    ],
)
def test_what_kind_of_fault_it_is_is_told(
    tmp_path: Path, reference: dict[str, int], candidate: dict[str, int], said: str
) -> None:
    base = {1: np.random.default_rng(0).standard_normal((4, 100)).astype(np.float32)}
    base |= {2: base[1] * 2 + 1, -1: -base[1], 0: base[1] * 0}
    for name, outputs in (("reference", reference), ("candidate", candidate)):
        np.savez(tmp_path / f"{name}.npz", **{key: base[value] for key, value in outputs.items()})
    ended = CliRunner().invoke(diff, [str(tmp_path / "reference.npz"), str(tmp_path / "candidate.npz")])
    assert isinstance(ended.exception, GateFailed)
    assert said in f"{ended.exception.message} {ended.output}"


def test_outputs_of_two_models_are_paired_by_name_where_both_have_the_same(tmp_path: Path) -> None:
    head = '<ir_version: 8, opset_import: ["" : 17]>\n'
    for name, outputs in (("a", "float[2,3] y, float[2,3] z"), ("b", "float[2,3] z, float[2,3] y")):
        model = parser.parse_model(f"{head}g (float[2,3] x) => ({outputs}) {{ y = Neg(x) z = Exp(x) }}")
        (tmp_path / f"{name}.onnx").write_bytes(model.SerializeToString())
    ended = CliRunner().invoke(diff, [str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx")])
    assert ended.exception is None, ended.output


# ------------------------------------------------------------------------------------------------------ where it goes


def test_an_output_folder_that_is_a_link_in_a_circle_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>\ng (float[2] x) => (float[2] y) { y = Neg(x) }'
    )
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    (tmp_path / "loop").symlink_to("loop")
    line = ["run", str(tmp_path / "model.onnx"), "--target", "cpu", "--no-publish", "--out", str(tmp_path / "loop")]
    assert run_boundary(cli, line, prog="convert", usage_code="CNV-2000") == 2
    assert "error [CNV-2023]" in capsys.readouterr().err
