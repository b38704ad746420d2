"""Hard inputs from real reports: each ends as it should, with the right numbers or with a message that names the cause.

The builders lie beside the project; where they are absent the whole file is skipped. ``meta.json`` of a case says what
it expects; :data:`ENDS` says how it ends here, so that a silent change of outcome is seen.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from case_runner import build_case, convert_case, request_for, torch_host

from convert.host import StageHost
from convert.lowering import LoweringRefused, lower
from convert.request import Conversion, as_json
from convert.values import ExportOptions

FOLDER = Path(__file__).resolve().parents[3] / "shared" / "cases" / "public"
BUILDERS = sorted(FOLDER.glob("build_*.py"))
NAMES = [path.stem.removeprefix("build_") for path in BUILDERS]

pytestmark = pytest.mark.skipif(not BUILDERS, reason="the folder of hard inputs is not beside this checkout")

ENDS = {
    "c03_squeeze_if": 4,
    "f05_model_is_dir": 3,
    "o01_ext_path_traversal": 3,
    "o03_ext_missing": 3,
    "o13_bf16_onnx": 5,
    "o14_double_model": 5,
    "o20_truncated_onnx": 3,
    "p05_torchvision_nms": 3,
    "s04_randomnormal": 3,
    "s05_bn_train_mode_onnx": 4,
    "s10_custom_default_domain": 5,
    "s11_custom_mmcv_domain": 5,
    "t06_shape_mismatch_sd": 3,
    "t07_missing_module": 3,
    "t08_evil_pickle": 3,
    "t11_truncated_pt": 3,
    "t12_lfs_pointer": 3,
    "t13_html_page": 3,
    "t14_zip_of_something_else": 3,
    "t27_quantized_torchscript": 3,
    "t31_empty_pt": 3,
    "t34_ts_extra_methods": 3,
}
"""Exit codes; a case that isn't named is published."""
SAYS = {
    "io03_unused_input": "does not use this input.*mask",
    "n01_all_zero_output": '"state":"all-zero"',
    "n04_nan_in_output": "original model already gives NaN at 9 of 16",
    "n06_constant_output": "does not depend on the input",
    "n07_argmax_ties": r"integer output: exact match \d+/192",
    "n10_empty_output": '"state":"empty"',
    "n16_sdpa_masked_row": "fell back to the torchscript exporter.*cosine 0.998",
    "o05_opset_3": "opset 3 raised",
    "o07_ir_too_new": "IR version 15 lowered to 14",
    "o08_init_as_inputs": "2 weights taken out",
    "o12_unsorted_graph": "topological order",
    "s13_local_functions": "inlined 1 local function",
    "s14_nested_if_inline": "simplified with fewer passes",
    "t03_dataparallel_prefix": "module\\.",
    "t22_train_mode_saved": "train",
    "t25_cuda_device_in_script": "cuda:0",
    "t28_half_weights_cpu": "float32",
}
"""What the document of a published case must hold: notes and states that its user has to see."""
LOWERED_TO = (11, 13, 16, 17, 18)
NOT_LOWERED: dict[str, dict[int, list[str]]] = {}
"""Operators of a case that have no equivalent, by opset."""


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StageHost]:
    with torch_host(tmp_path_factory.mktemp("cases") / "workers.log") as running:
        yield running


def built(host: StageHost, name: str, folder: Path) -> dict[str, Any]:
    return build_case(host, FOLDER / f"build_{name}.py", folder / name)


def document_of(conversion: Conversion) -> str:
    return msgspec.json.encode(as_json(conversion)).decode()


def test_every_expectation_names_a_case() -> None:
    assert set(ENDS) <= set(NAMES)
    assert set(SAYS) <= set(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith("n2") or name.startswith("n24")])
def test_case(host: StageHost, name: str, tmp_path: Path) -> None:
    meta = built(host, name, tmp_path)
    if meta["kind"] == "compare":
        pytest.skip("compared by `convert diff`, see below")
    folder = tmp_path / name
    trusted = {"allow_pickle": True} if meta["kind"] == "pickle" and "canary" not in meta else {}
    conversion = convert_case(host, request_for(meta, folder, load=trusted), tmp_path / "places")
    assert conversion.exit_code == ENDS.get(name, 0), conversion.error
    if conversion.error:
        said = f"{conversion.error['message']} {conversion.error['hint']}"
        assert meta["expect"] != "success"
        assert [pattern for pattern in meta["names"] if not re.search(pattern, said)] == []
        assert conversion.error["hint"]
    else:
        assert meta["expect"] != "error" or name in ("io09_hf_modeloutput", "n04_nan_in_output")
        assert re.search(SAYS.get(name, ""), document_of(conversion)), document_of(conversion)
        check_numbers(conversion, meta, folder)
        check_lowered(conversion, name, tmp_path / "places")
    assert not (folder / meta.get("canary", "PWNED")).exists()


def check_numbers(conversion: Conversion, meta: dict[str, Any], folder: Path) -> None:
    """The gate passed on every output; the artifact gives the reference that torch gave, and is not inflated."""
    (target,) = conversion.targets
    assert target.verdict is not None and target.verdict.passed
    assert target.artifact is not None
    if "max_growth" in meta:
        assert target.artifact.bytes < (folder / meta["model"]).stat().st_size * meta["max_growth"]
    if "keep_ops" in meta:
        import onnx

        ops = [node.op_type for node in onnx.load(target.artifact.path).graph.node]
        assert {op: ops.count(op) for op in meta["keep_ops"]} == meta["keep_ops"]
    if (folder / "reference.npz").exists():
        check_reference(Path(target.artifact.path), folder, meta)


def check_lowered(conversion: Conversion, name: str, places: Path) -> None:
    """The whole graph at every opset that a vendor asks for: the same numbers, or refused by name."""
    import onnx

    artifact = conversion.targets[0].artifact
    assert artifact is not None
    model = onnx.load(artifact.path)
    # Export and simplify keep the same samples; `load` has no reference beside its own.
    sample = next(path.parent.parent for path in (places / "cache").rglob("reference/000.npz"))
    feeds = dict(np.load(sample / "samples/000.npz"))
    wanted = run_graph(model, feeds)
    refused = {}
    for opset in LOWERED_TO:
        try:
            lowered = lower(model, opset)
        except LoweringRefused as error:
            refused[opset] = sorted({one.op for one in error.refusals})
            continue
        onnx.checker.check_model(lowered)
        for given, expected in zip(run_graph(lowered, feeds), wanted, strict=True):
            np.testing.assert_allclose(given, expected, rtol=1e-3, atol=1e-5)
    assert refused == NOT_LOWERED.get(name, {})


def run_graph(model: Any, feeds: dict[str, Any]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    outputs: list[Any] = onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)
    return outputs


def check_reference(artifact: Path, folder: Path, meta: dict[str, Any]) -> None:
    """Run the artifact itself on the builder's inputs, apart from everything that the project does."""
    import onnxruntime
    import torch

    session = onnxruntime.InferenceSession(str(artifact))
    args, kwargs = torch.load(folder / meta["inputs"], weights_only=True)
    nodes = session.get_inputs()
    leaves = list(flatten([*args, *kwargs.values()]))[: len(nodes)]
    outputs = session.run(None, {node.name: widened(leaf, node) for leaf, node in zip(leaves, nodes, strict=True)})
    wanted = list(np.load(folder / "reference.npz").values())
    assert [array.shape for array in outputs] == [array.shape for array in wanted]
    for given, reference in zip(outputs, wanted, strict=True):
        if reference.dtype.kind == "f" and np.isfinite(reference).all() and np.any(reference):
            assert cosine(given, reference) >= meta.get("min_cos", 0.999)
            assert np.linalg.norm(given) == pytest.approx(np.linalg.norm(reference), rel=1e-2)


def flatten(tree: Any) -> Iterator[Any]:
    import torch

    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from flatten(list(tree.values()))
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from flatten(item)


def widened(leaf: Any, node: Any) -> Any:
    return leaf.float().numpy() if leaf.dtype.is_floating_point and node.type == "tensor(float)" else leaf.numpy()


def cosine(one: Any, other: Any) -> float:
    a, b = one.astype("f8").ravel(), other.astype("f8").ravel()
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


@pytest.mark.parametrize("name", ["d01_batch_baked", "d02_lstm_dynamic_batch", "d04_dynamic_from_size_one"])
def test_a_dynamic_batch_is_dynamic_or_refused_with_its_cause(host: StageHost, name: str, tmp_path: Path) -> None:
    import onnxruntime
    import torch

    meta = built(host, name, tmp_path)
    (sample,), _ = torch.load(tmp_path / name / meta["inputs"], weights_only=True)
    shape = ",".join(["batch", *map(str, sample.shape[1:])])
    load = {"inputs": (f"float32[{shape}]",), "allow_pickle": True}
    conversion = convert_case(host, request_for(meta, tmp_path / name, load=load), tmp_path / "places")
    if conversion.error:
        assert conversion.exit_code == 4
        assert re.search("batch|Reshape|initial_h|size|dimension", conversion.error["message"])
        return
    artifact = conversion.targets[0].artifact
    assert artifact is not None
    session = onnxruntime.InferenceSession(artifact.path)
    (node,) = session.get_inputs()
    assert node.shape[0] == "batch"
    batch = meta["try_batch"]
    assert session.run(None, {node.name: np.zeros((batch, *sample.shape[1:]), "f4")})[0].shape[0] == batch


def test_an_exporter_that_drops_repeated_indices_is_caught_by_a_sample_that_has_them(
    host: StageHost, tmp_path: Path
) -> None:
    name = "n24_index_add_no_repeat_sample"
    meta = built(host, name, tmp_path)
    folder = tmp_path / name
    request = request_for(meta, folder, load={"samples": str(folder / "inputs2.pt")})
    conversion = convert_case(host, request, tmp_path / "places")
    assert conversion.exit_code == 0
    (fallen,) = [n.text for run in conversion.targets[0].stages for n in run.notes if n.text.startswith("fell back")]
    assert "torchscript: ONNX Runtime gives other numbers than torch: output 'output'" in fallen
    assert "of the model as a program" in fallen


@pytest.mark.parametrize(
    ("name", "said"),
    [("n11_fp16_big_activation", "65504"), ("n12_fp16_mask_finfo_min", "3.4"), ("n13_fp16_mask_1e9", "1e\\+?0?9")],
)
def test_fp16_names_what_will_not_fit(host: StageHost, name: str, said: str, tmp_path: Path) -> None:
    meta = built(host, name, tmp_path)
    conversion = convert_case(host, request_for(meta, tmp_path / name, precision="fp16"), tmp_path / "places")
    warnings = [note.text for run in conversion.targets[0].stages for note in run.notes if note.level == "warning"]
    assert re.search(said, " ".join([*warnings, document_of(conversion)]))


@pytest.mark.parametrize("name", ["p01_gridsample_opset", "p11_vit_block_old_opset", "p12_gelu_tanh_groupnorm"])
@pytest.mark.parametrize("opset", [17, 20])
def test_an_opset_that_is_asked_for_is_reached_or_refused_by_name(
    host: StageHost, name: str, opset: int, tmp_path: Path
) -> None:
    meta = built(host, name, tmp_path)
    request = request_for(
        meta, tmp_path / name, load={"allow_pickle": True}, export=ExportOptions(opset=opset), publish=False
    )
    conversion = convert_case(host, request, tmp_path / "places")
    if conversion.error:
        assert conversion.exit_code == 4
        assert str(opset) in conversion.error["message"]
        return
    support = conversion.targets[0].support
    assert support is not None
    assert support.opset == opset


COMPARED = [name for name in NAMES if name.startswith("n2") and not name.startswith("n24")]


@pytest.mark.parametrize("name", ["n02_scale_times_two", *COMPARED])
def test_two_files_of_outputs_that_differ_are_told_apart(host: StageHost, name: str, tmp_path: Path) -> None:
    from click.testing import CliRunner

    from convert.commands.diff import diff
    from convert.errors import GateFailed

    meta = built(host, name, tmp_path)
    folder = tmp_path / name
    ended = CliRunner().invoke(diff, [str(folder / "reference.npz"), str(folder / "candidate.npz")])
    assert isinstance(ended.exception, GateFailed)
    said = f"{ended.exception.message} {ended.output}"
    assert [pattern for pattern in meta["names"] if not re.search(pattern, said, re.IGNORECASE)] == []
