"""Golden plans of the backend ``atc``, each accepted by the strict stand-in of its version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from atc_kit import IMAGE, ROOT, ask_double, dims_of, graph_for, model_of, options_for, plan_for

GOLDEN = ROOT / "tests" / "golden" / "plans" / "atc"
BATCH = {"image": ("N", 3, 32, 32)}
PICTURE = {"image": (1, 3, "H", "W")}
TEXT = {"ids": ("int64", "N", "T"), "mask": ("N", "T")}
PREPROCESS = '{"image": "bgr", "model": "rgb", "mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}'
CROPPED = '{"size": [40, 48], "crop": [4, 8, 28, 32], "pad": [2, 2, 0, 0], "scale": 1, "mean": [127.5], "std": [58]}'
YUV = '{"image": "yuv420sp", "model": "bgr"}'

Case = tuple[str, str, dict[str, Any], dict[str, Any], dict[str, Any]]
CASES: dict[str, Case] = {
    "5.1_fp16_static": ("5.1.RC2", "Ascend310", IMAGE, {}, {}),
    "5.1_fp32_on_310": ("5.1.RC2", "Ascend310", IMAGE, {}, {"precision": "fp32"}),
    "5.1_mixed_310p": ("5.1.RC2", "Ascend310P3", IMAGE, {}, {"precision": "mixed"}),
    "5.1_batch_steps": ("5.1.RC2", "Ascend310P3", BATCH, {"N": (1, 4, 8)}, {}),
    "6.0_range_in_its_own_flag": ("6.0.1", "Ascend310P3", BATCH, {"N": range(1, 9)}, {}),
    "6.0_kept_nodes": ("6.0.1", "Ascend310P3", IMAGE, {}, {"precision": "mixed", "keep": ("node0", "a/b.c")}),
    "6.2_precision_mode_v2": ("6.2.RC2", "Ascend310P3", IMAGE, {}, {"precision": "fp32"}),
    "6.3_bf16_family": ("6.3.RC2", "Ascend910B", IMAGE, {}, {"precision": "bf16"}),
    "6.3_free_dims": ("6.3.RC2", "Ascend310P3", TEXT, {"N": (1,), "T": (64, 128)}, {}),
    "7.0_image_steps": ("7.0.0", "Ascend310B1", PICTURE, {"H": (224, 448), "W": (224, 448)}, {}),
    "8.0_family_without_toolkit": ("8.0.RC3", "Ascend910B", IMAGE, {}, {}),
    "8.0_external_weights": ("8.0.RC3", "Ascend910B3", IMAGE, {}, {"options": {"external_weight": "1"}}),
    "8.1_literal_910B": ("8.1.RC1", "Ascend910B", IMAGE, {}, {"soc": "Ascend910B"}),
    "8.1_asked_soc": ("8.1.RC1", "Ascend910B", IMAGE, {}, {"soc": "Ascend910B4-1"}),
    "8.1_range": ("8.1.RC1", "Ascend910B2", BATCH, {"N": range(1, 17)}, {}),
    "8.1_anything": ("8.1.RC1", "Ascend310P3", TEXT, {"N": None, "T": None}, {"precision": "fp32"}),
    "8.1_steps_become_a_range": ("8.1.RC1", "Ascend910B3", TEXT, {"N": (1, 4), "T": range(16, 257)}, {}),
    "8.5_fp32": ("8.5.0", "Ascend910B3", IMAGE, {}, {"precision": "fp32"}),
    "8.5_mixed_by_atc": ("8.5.0", "Ascend910B3", IMAGE, {}, {"precision": "mixed"}),
    "8.5_mixed_kept_nodes": ("8.5.0", "Ascend910B3", IMAGE, {}, {"precision": "mixed", "keep": ("node0",)}),
    "8.5_mixed_kept_types": (
        "8.5.0",
        "Ascend910B3",
        IMAGE,
        {},
        {"precision": "mixed", "keep": ("node0",), "options": {"keep_ops": "Softmax,ReduceMean"}},
    ),
    "8.5_image": ("8.5.0", "Ascend310P3", IMAGE, {}, {"preprocess": PREPROCESS}),
    "8.5_image_cropped_and_padded": ("8.5.0", "Ascend310P3", IMAGE, {}, {"preprocess": CROPPED}),
    "8.5_image_yuv": ("8.5.0", "Ascend310B4", IMAGE, {}, {"preprocess": YUV}),
    "8.5_image_with_batch_steps": ("8.5.0", "Ascend310P3", BATCH, {"N": (1, 2)}, {"preprocess": PREPROCESS}),
    "8.5_operator_precision": (
        "8.5.0",
        "Ascend910B1",
        IMAGE,
        {},
        {"options": {"op_precision_mode": "[ByOpType]\nRelu=high_precision\n", "deterministic": "1"}},
    ),
    "8.5_implmode": (
        "8.5.0",
        "Ascend910B1",
        IMAGE,
        {},
        {"options": {"op_select_implmode": "high_precision", "optypelist_for_implmode": "Gelu", "log": "info"}},
    ),
    "8.5_host": (
        "8.5.0",
        "Ascend310P3",
        BATCH,
        {"N": range(1, 5)},
        {"options": {"host_env_os": "linux", "host_env_cpu": "aarch64"}},
    ),
    "8.5_own_mode": ("8.5.0", "Ascend310P3", IMAGE, {}, {"options": {"precision_mode": "allow_fp32_to_fp16"}}),
    "8.5_scalar_input_means_free_dims": ("8.5.0", "Ascend910B3", {"x": ("N", 8), "t": ()}, {"N": (1, 4)}, {}),
    "9.0_a3": ("9.0.0", "Ascend910_9392", IMAGE, {}, {"options": {"external_weight": "2"}}),
    "9.0_five_dimensions": ("9.0.0", "Ascend910B3", {"video": (1, 3, 4, 16, 16)}, {}, {"precision": "bf16"}),
    "9.1_family_950": ("9.1.0", "Ascend950", IMAGE, {}, {}),
    "9.2_batch_steps": ("9.2.0", "Ascend910B3", BATCH, {"N": (8, 1, 4)}, {}),
    "9.2_deterministic": (
        "9.2.0",
        "Ascend910B3",
        IMAGE,
        {},
        {"options": {"deterministic": "1", "deterministic_level": "2", "jit_compile": "2"}},
    ),
    "9.2_weight_clip": (
        "9.2.0",
        "Ascend950PR_9579",
        IMAGE,
        {},
        {"precision": "fp16", "options": {"is_weight_clip": "0"}},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_as_before_and_its_version_takes_it(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    version, target, inputs, dims, more = CASES[name]
    model = model_of(inputs)
    plan = plan_for(graph_for(model, dims_of(**dims)), options_for(target, **more), version)

    code, said = ask_double(plan, model, version, tmp_path)
    assert (code, said.splitlines()[-1]) == (0, "ATC run success, welcome to the next use.")

    path = GOLDEN / f"{name}.json"
    text = json.dumps(msgspec.to_builtins(plan), indent=2, sort_keys=True) + "\n"
    if pytestconfig.getoption("--update-goldens"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert path.read_text() == text


def test_no_golden_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(CASES)


def test_a_plan_names_no_file_outside_its_folder() -> None:
    for path in GOLDEN.glob("*.json"):
        plan = json.loads(path.read_text())
        assert all("/" not in name for name in plan["files"])
        assert not any(word.partition("=")[2].startswith("/") for word in plan["argv"])
