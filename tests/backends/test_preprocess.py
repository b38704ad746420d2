"""``--preprocess``: 8-bit images to a model's inputs and back, as the rule says it and as AIPP does it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from atc_kit import model_of
from om_format import apply_aipp, parse_aipp

from convert.acceptance.samples import prepare_samples
from convert.acceptance.values import SampleOptions
from convert.arrays import load_npz
from convert.backends.atc.aipp import aipp_files, aipp_values
from convert.backends.preprocess import (
    ImageOptions,
    developed,
    image_of,
    image_shape,
    model_values,
    outside,
    parse_preprocess,
)
from convert.backends.yuv import rgb_of_yuv, yuv_of_rgb
from convert.errors import UsageError
from convert.ort import run_samples
from convert.stages.images import image_samples
from convert.values import DimRange, OnnxGraph, TensorSpec

MEAN = {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
WAYS = {
    "plain": {},
    "other order": {"image": "bgr", "model": "rgb", **MEAN},
    "cropped and padded": {"size": [12, 14], "crop": [2, 4, 6, 8], "pad": [1, 1, 0, 0], **MEAN},
    "whole numbers": {"scale": 1, "mean": [127.5], "std": [58]},
    "fourth byte": {"image": "rgbx", "model": "bgr", "size": [10, 8], "crop": [1, 0, 8, 8], **MEAN},
    "gray": {"image": "gray", "mean": [0.449], "std": [0.226]},
    "video": {"image": "yuv420sp", "model": "rgb", **MEAN},
    "video, cropped, other order": {
        "image": "yuv420sp",
        "model": "bgr",
        "size": [12, 14],
        "crop": [2, 4, 8, 8],
        **MEAN,
    },
}
SPEC = TensorSpec(name="image", dtype="float32", shape=("N", 3, 8, 8))
GRAY = TensorSpec(name="image", dtype="float32", shape=("N", 1, 8, 8))


def spec_of(way: dict[str, object]) -> TensorSpec:
    return GRAY if way.get("image") == "gray" else SPEC


def random_images(how, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, image_shape(how, 2), np.uint8)


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_aipp_of_a_card_and_the_graph_see_the_same_numbers(graph_of, way):
    spec = spec_of(way)
    graph = graph_of(model_of({"image": ("N", *spec.shape[1:])}))
    how = parse_preprocess(json.dumps(way), graph.inputs)
    images = random_images(how)
    files, faults = aipp_files(graph, json.dumps(way))
    assert faults == []
    assert np.array_equal(aipp_values(images, how), apply_aipp(images, parse_aipp(files["aipp.cfg"])))


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_aipp_departs_from_the_rule_by_no_more_than_half_floats_do(way):
    how = parse_preprocess(json.dumps(way), (spec_of(way),))
    images = random_images(how)
    ideal = model_values(images, how)
    assert np.allclose(aipp_values(images, how), ideal, rtol=2**-9, atol=2**-9 * np.abs(ideal).max())


@pytest.mark.parametrize("way", [way for way in WAYS.values() if way.get("image") != "yuv420sp"])
def test_an_image_is_found_again_behind_what_a_card_makes_of_it(way):
    how = parse_preprocess(json.dumps(way), (spec_of(way),))
    images = random_images(how)
    again = image_of(aipp_values(images, how), how)
    assert np.array_equal(aipp_values(again, how), aipp_values(images, how))
    assert outside(aipp_values(images, how), how) == 0


def test_colours_of_four_equal_pixels_survive_yuv():
    squares = np.random.default_rng(3).integers(0, 256, (2, 3, 4, 3)).repeat(2, axis=1).repeat(2, axis=2)
    yuv = yuv_of_rgb(squares.astype(np.uint8))
    assert yuv.shape == (2, 9, 8)
    assert np.abs(rgb_of_yuv(yuv).astype(int) - squares).max() <= 2


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_given_images_become_what_the_model_takes(way):
    how = parse_preprocess(json.dumps(way), (spec_of(way),))
    images = random_images(how)
    asked = {key: value for key, value in way.items() if key != "size"}
    made = developed({"image": images, "other": np.ones(3)}, json.dumps(asked))
    assert np.array_equal(made["image"], model_values(images, how))
    assert list(made) == ["image", "other"]


def test_only_images_are_developed():
    text = json.dumps({"input": "image", **MEAN})
    floats = {"image": np.zeros((1, 3, 8, 8), "f4"), "mask": np.zeros((1, 8, 8, 3), np.uint8)}
    assert developed(floats, text)["image"] is floats["image"]
    assert developed(floats, text)["mask"] is floats["mask"]


def test_images_of_another_size_are_refused():
    with pytest.raises(UsageError, match=r"8 x 8, and --preprocess says 9 x 9") as error:
        developed({"image": np.zeros((1, 8, 8, 3), np.uint8)}, '{"size": [9, 9]}')
    assert error.value.code == "CNV-2287"


def test_a_size_that_is_fixed_by_dim_is_a_size():
    from convert.backends.preprocess import sized_inputs

    spec = TensorSpec(name="image", dtype="float32", shape=(1, 3, "H", "W"))
    dims = (DimRange(name="H", sizes=(32,), low=32, high=32), DimRange(name="W", low=48, high=48))
    assert parse_preprocess("{}", sized_inputs((spec,), dims)).size == (32, 48)


# --------------------------------------------------------------------------------------------------------------- stage


def images_of(graph: OnnxGraph, way: dict[str, object], folder: Path, *, given: bool = True) -> OnnxGraph:
    folder.mkdir()
    return image_samples(graph, ImageOptions(backend="atc", preprocess=json.dumps(way), given=given), folder)


def test_samples_are_made_of_images_and_the_references_anew(graph_of, tmp_path):
    way = {"image": "bgr", "model": "rgb", **MEAN}
    sample = {"image": np.random.default_rng(1).uniform(-1.5, 1.5, (2, 3, 8, 8)).astype("f4")}
    graph = graph_of(model_of({"image": (2, 3, 8, 8)}), sample)
    before = {entry.name: graph.path(entry.name).read_bytes() for entry in graph.files}
    made = images_of(graph, way, tmp_path / "images")
    how = parse_preprocess(json.dumps(way), graph.inputs)

    image = load_npz(made.path("images/000.npz"))["image"]
    fed = load_npz(made.path("samples/000.npz"))
    assert (image.dtype, image.shape) == (np.uint8, (2, 8, 8, 3))
    assert np.array_equal(fed["image"], aipp_values(image, how))
    assert np.abs(fed["image"] - sample["image"]).max() < 0.6 / 255 / 0.22
    outputs = run_samples(made.model_path, [fed])[0]
    assert np.array_equal(load_npz(made.path("reference/000.npz"))["0"], outputs[0])
    assert (made.stage, made.parent) == ("images", graph.digest)
    assert [note.subject for note in made.notes] == ["samples/000.npz"]
    assert {entry.name: graph.path(entry.name).read_bytes() for entry in graph.files} == before


def test_values_that_no_pixel_gives_are_refused_with_their_share(graph_of, tmp_path):
    sample = {"image": np.zeros((1, 3, 8, 8), "f4")}
    sample["image"][0, :, 0, 0] = 9.0
    graph = graph_of(model_of({"image": (1, 3, 8, 8)}), sample, {"image": np.full((1, 3, 8, 8), -1, "f4")})
    with pytest.raises(UsageError) as error:
        images_of(graph, {}, tmp_path / "images")
    assert error.value.code == "CNV-2286"
    assert "input image" in error.value.message
    assert "sample 0 (1.56%), sample 1 (100.00%)" in error.value.message


def test_without_samples_of_the_user_images_are_made_up(graph_of, tmp_path):
    graph = graph_of(model_of({"image": (1, 3, 8, 8)}), {"image": np.full((1, 3, 8, 8), 50, "f4")})
    made = images_of(graph, {"image": "yuv420sp", "model": "rgb"}, tmp_path / "images", given=False)
    image = load_npz(made.path("images/000.npz"))["image"]
    assert image.shape == (1, 12, 8)
    assert len(np.unique(image)) > 40
    assert "random ones were made" in made.notes[0].text


def test_indices_that_a_model_gives_keep_what_they_searched(graph_of, tmp_path):
    text = "g (float[1,3,8,8] image) => (int64[1,8,8] y) { y = ArgMax <axis = 1, keepdims = 0> (image) }"
    graph = graph_of(onnx.parser.parse_model('<ir_version: 8, opset_import: ["" : 17]>' + text), {
        "image": np.random.default_rng(2).random((1, 3, 8, 8), "f4")
    })  # fmt: skip
    made = images_of(graph, {}, tmp_path / "images")
    assert "ties/000.npz" in {entry.name for entry in made.files}


def test_acceptance_takes_images_where_the_artifact_does(graph_of, tmp_path):
    images = np.random.default_rng(8).integers(0, 256, (1, 8, 8, 3), np.uint8)
    np.savez(tmp_path / "images.npz", image=images)
    graph = graph_of(model_of({"image": (1, 3, 8, 8)}))
    options = SampleOptions(given=str(tmp_path / "images.npz"), preprocess=json.dumps(MEAN))
    prepared = prepare_samples(graph, options, tmp_path / "prepared")
    how = parse_preprocess(json.dumps(MEAN), graph.inputs)
    assert np.array_equal(load_npz(prepared.graph.path("samples/000.npz"))["image"], model_values(images, how))
