"""Texts that the backend ``atc`` reads and writes: ais_bench, AIPP, images behind samples, unused imports."""

from __future__ import annotations

import json

import numpy as np
import pytest
from atc_kit import IMAGE, graph_for, model_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import helper

from convert.backends.atc.aipp import aipp_files
from convert.backends.atc.ais_bench import arguments, read_speed, read_summary
from convert.backends.preprocess import image_of, model_values, parse_preprocess
from convert.normalize import drop_unused_imports
from convert.values import TensorSpec

LINE = "[INFO] NPU_compute_time (ms): min = 1.9, max = 2.5, mean = 2.0, median = 1.95, percentile(99%) = 2.4\n"
TABLE = """
╒══════════════════╤═══════╤═══════╤════════╤══════════╤═══════╕
│                  │   min │   max │   mean │   median │   P99 │
╞══════════════════╪═══════╪═══════╪════════╪══════════╪═══════╡
│ NPU_compute_time │   1.9 │   2.5 │    2.0 │     1.95 │   2.4 │
╘══════════════════╧═══════╧═══════╧════════╧══════════╧═══════╛
"""


@pytest.mark.parametrize(
    "text",
    [
        f"{LINE}[INFO] throughput 1000*batchsize(16)/NPU_compute_time.mean(2.0): 8000.0\n",
        f"{LINE}[INFO] throughput 1000*batchsize.mean(16)/NPU_compute_time.mean(2.0): 8000.0\n",
        f"{TABLE}[INFO] Throughput 1000*batchsize.mean(16)/NPU_compute_time.mean(2.0): 8000.0\n",
    ],
    ids=["2022", "2023", "a table"],
)
def test_all_spellings_of_the_throughput_are_read(text):
    speed = read_speed(text)
    assert (speed.throughput, speed.batch) == (8000.0, 16.0)
    assert (speed.minimum, speed.maximum, speed.mean, speed.median, speed.p99) == (1.9, 2.5, 2.0, 1.95, 2.4)


def test_output_without_a_throughput_tells_nothing():
    assert read_speed("[ERROR] load model failed").throughput == 0.0


def test_a_summary_is_read_in_both_spellings_of_its_percentile():
    for key in ("percentile(99%)", "P99"):
        times = {"min": 1.9, "max": 2.5, "mean": 2.0, "median": 1.95, key: 2.4, "count": 100}
        speed = read_summary(json.dumps({"NPU_compute_time": times, "throughput": 500.0}).encode())
        assert (speed.p99, speed.count, speed.throughput) == (2.4, 100, 500.0)


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{}", b'{"NPU_compute_time": 3}', b'{"NPU_compute_time": {"min": []}}']
)
def test_a_file_that_is_no_summary_is_refused(content):
    with pytest.raises(ValueError, match="no summary of ais_bench"):
        read_summary(content)


def test_the_arguments_of_ais_bench_name_steps_and_room():
    words = arguments("m.om", ["a.npy", "b.npy"], out="o", name="s", steps=["--dymBatch", "4"], sizes=[8, 9])
    assert words == [
        "--model",
        "m.om",
        "--input",
        "a.npy,b.npy",
        "--output",
        "o",
        "--output_dirname",
        "s",
        "--outfmt",
        "NPY",
        "--dymBatch",
        "4",
        "--outputSize",
        "8,9",
    ]


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    arrays(np.uint8, (1, 6, 5, 3)),
    st.sampled_from(["rgb", "bgr"]),
    st.lists(st.floats(0.05, 2), min_size=6, max_size=6),
    st.sampled_from([1, 255]),
)
def test_pixels_survive_the_way_to_the_model_and_back(pixels, image, numbers, scale):
    text = json.dumps({"image": image, "model": "rgb", "mean": numbers[:3], "std": numbers[3:], "scale": scale})
    how = parse_preprocess(text, (TensorSpec(name="x", dtype="float32", shape=("N", 3, 6, 5)),))
    assert np.array_equal(image_of(model_values(pixels, how), how), pixels)


def test_the_whole_part_of_a_mean_and_its_rest_go_where_each_is_taken():
    text = '{"mean": [0.5], "std": [0.25], "scale": 255, "image": "bgr", "model": "rgb"}'
    files, faults = aipp_files(graph_for(model_of(IMAGE)), text)
    lines = [line.strip() for line in files["aipp.cfg"].splitlines()]
    assert "mean_chn_0: 127" in lines
    assert "min_chn_0: 0.5" in lines
    assert "var_reci_chn_2: 0.0156862745" in lines
    assert "rbuv_swap_switch: true" in lines
    assert faults == []


def test_the_rows_of_the_colour_matrix_change_places_for_bgr():
    graph = graph_for(model_of(IMAGE))
    rgb = aipp_files(graph, '{"image": "yuv420sp", "model": "rgb"}')[0]["aipp.cfg"]
    bgr = aipp_files(graph, '{"image": "yuv420sp", "model": "bgr"}')[0]["aipp.cfg"]
    assert "matrix_r0c2: 359" in rgb
    assert "matrix_r2c2: 359" in bgr


def test_what_aipp_can_not_do_is_told():
    graph = graph_for(model_of({"image": (1, 3, 3, 3)}))
    _, faults = aipp_files(graph, '{"image": "yuv420sp", "model": "rgb"}')
    assert faults == ["sizes and crops of YUV420 images must be even"]


def test_imports_that_no_node_uses_are_dropped():
    model = model_of(IMAGE)
    model.opset_import.extend([helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("npu", 1)])
    model.graph.node.append(helper.make_node("NPUQuantize", ["image"], ["q"], domain="npu"))
    drop_unused_imports(model)
    assert [entry.domain for entry in model.opset_import] == ["", "npu"]
