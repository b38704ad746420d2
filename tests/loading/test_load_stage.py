"""The load stage: signatures and samples of every kind of model and input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loading_files import Net, onnx_model, save_onnx, save_program, save_script, save_torch
from onnx import TensorProto, helper
from torch import nn

from convert.arrays import load_npz
from convert.errors import ConvertError
from convert.loading.torch_models import open_model, sample_calls
from convert.loading.user_code import import_callable
from convert.stages.load import load_model
from convert.values import DimRange, LoadedModel, LoadOptions


def load(path: Path, tmp_path: Path, **options: Any) -> LoadedModel:
    folder = tmp_path / "out"
    folder.mkdir(exist_ok=True)
    return load_model(LoadOptions(path=str(path), **options), folder)


def refused(path: Path, tmp_path: Path, **options: Any) -> ConvertError:
    with pytest.raises(ConvertError) as raised:
        load(path, tmp_path, **options)
    return raised.value


def shapes(loaded: LoadedModel) -> list[tuple[str, str, tuple[int | str, ...]]]:
    return [(spec.name, spec.dtype, spec.shape) for spec in loaded.inputs]


def arrays(loaded: LoadedModel, index: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    return load_npz(loaded.path(f"samples/{index:03d}.npz"))


class Nested(nn.Module):
    """Dicts, lists, tuples, None and keyword arguments."""

    def forward(self, x: Any, feats: Any, mask: Any = None, *, scale: Any = None) -> Any:
        y = x + feats["a"] + feats["b"][0] + feats["b"][1][0]
        y = y if mask is None else y * mask
        return y if scale is None else y * scale


class Lookup(nn.Module):
    """An index into a table of five."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.table(ids)


class Two(nn.Module):
    def forward(self, image: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return image * mask


# --------------------------------------------------------------------------------- from --input texts


def test_texts_give_a_random_sample_and_two_of_different_sizes_for_a_symbolic_dimension(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", Net())
    loaded = load(path, tmp_path, inputs=("x:float32[3,4]",))
    assert shapes(loaded) == [("x", "float32", (3, 4))]
    assert (loaded.sampled, loaded.sample_count, loaded.parent[:7]) == ("random", 1, "sha256:")
    loaded = load(path, tmp_path, inputs=("x:float32[N,4]",))
    assert loaded.sample_count == 2
    assert arrays(loaded, 0)["x"].shape != arrays(loaded, 1)["x"].shape


def test_same_seed_gives_the_same_value_and_another_seed_another(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", Net())
    first, again, other = (load(path, tmp_path, inputs=("x:float32[3,4]",), seed=seed).digest for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_symbolic_dimension_is_sampled_at_two_sizes_above_one(tmp_path: Path) -> None:
    loaded = load(save_script(tmp_path / "m.pt", Net()), tmp_path, inputs=("x:float32[N,4]",))
    assert shapes(loaded) == [("x", "float32", ("N", 4))]
    assert loaded.dims == (DimRange(name="N"),)
    assert [arrays(loaded, index)["x"].shape for index in (0, 1)] == [(2, 4), (3, 4)]


@pytest.mark.parametrize(
    ("dim", "sizes"),
    [("N=1..8", [2, 3]), ("N=4..", [4, 5]), ("N=1,4,8", [4, 8]), ("N=6", [6, 6]), ("N=1..2", [2, 1]), ("N=1", [1, 1])],
)
def test_dim_decides_the_sizes(dim: str, sizes: list[int], tmp_path: Path) -> None:
    loaded = load(save_script(tmp_path / "m.pt", Net()), tmp_path, inputs=("x:float32[N,4]",), dims=(dim,))
    assert [arrays(loaded, index)["x"].shape[0] for index in (0, 1)] == sizes


def test_names_of_texts_are_kept_where_they_are_bound_in_order(tmp_path: Path) -> None:
    loaded = load(save_script(tmp_path / "m.pt", Two()), tmp_path, inputs=("a:float32[2]", "b:bool[2]"))
    assert shapes(loaded) == [("a", "float32", (2,)), ("b", "bool", (2,))]
    assert [list(feed) for feed in (arrays(loaded),)] == [["a", "b"]]


def test_texts_bound_by_name_come_in_call_order(tmp_path: Path) -> None:
    loaded = load(save_script(tmp_path / "m.pt", Two()), tmp_path, inputs=("mask:float32[2]", "image:float32[3,2]"))
    assert [spec.name for spec in loaded.inputs] == ["image", "mask"]


def test_texts_without_names_take_those_of_forward(tmp_path: Path) -> None:
    loaded = load(save_script(tmp_path / "m.pt", Two()), tmp_path, inputs=("float32[2]", "float32[2]"))
    assert [spec.name for spec in loaded.inputs] == ["image", "mask"]


def test_nested_texts_build_nested_arguments(tmp_path: Path) -> None:
    path = save_torch(tmp_path / "m.pt", Nested())
    texts = ("x:float32[2]", "feats.a:float32[2]", "feats.b.0:float32[2]", "feats.b.1.0:float32[2]", "scale:float32[]")
    loaded = load(path, tmp_path, inputs=texts, allow_pickle=True)
    assert [spec.name for spec in loaded.inputs] == ["x", "feats.a", "feats.b.0", "feats.b.1.0", "scale"]
    call = sample_calls(loaded)[0]
    assert isinstance(call.args[1]["b"][1], list)
    assert list(call.kwargs) == ["scale"]


class Anything(nn.Module):
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return args[0] - args[1]


def test_forward_that_takes_anything_gets_its_inputs_in_order(tmp_path: Path) -> None:
    path = save_torch(tmp_path / "m.pt", Anything())
    loaded = load(path, tmp_path, inputs=("a:float32[2]", "b:float32[2]"), allow_pickle=True)
    assert [spec.name for spec in loaded.inputs] == ["a", "b"]
    assert len(sample_calls(loaded)[0].args) == 2


@pytest.mark.parametrize(
    ("type_text", "kind"), [("List[torch.Tensor]", list), ("Tuple[torch.Tensor, torch.Tensor]", tuple)]
)
def test_containers_of_a_script_follow_its_types(type_text: str, kind: type, tmp_path: Path) -> None:
    source = (
        "import torch\nfrom typing import List, Tuple\nclass M(torch.nn.Module):\n"
        f"    def forward(self, xs: {type_text}) -> torch.Tensor:\n        return xs[0] + xs[1]\n"
    )
    (tmp_path / f"typed_{kind.__name__}.py").write_text(source)
    make = import_callable(f"{tmp_path}/typed_{kind.__name__}.py:M", "--factory")
    path = save_script(tmp_path / "m.pt", make())
    loaded = load(path, tmp_path, inputs=("xs.0:float32[2]", "xs.1:float32[2]"))
    call = sample_calls(loaded)[0]
    assert type(call.args[0]) is kind
    assert open_model(loaded, LoadOptions(path=str(path))).run(call).shape == (2,)


def test_integer_input_is_not_guessed(tmp_path: Path) -> None:
    error = refused(save_script(tmp_path / "m.pt", Lookup()), tmp_path, inputs=("ids:int64[1,3]",))
    assert error.code == "CNV-2021"
    assert "ids (int64[1,3])" in error.message
    assert "give sample inputs" in error.hint


def test_range_of_an_integer_input_is_kept_to(tmp_path: Path) -> None:
    loaded = load(save_script(tmp_path / "m.pt", Lookup()), tmp_path, inputs=("ids:int64[40]{3..4}",))
    assert set(arrays(loaded)["ids"].tolist()) == {3, 4}


@pytest.mark.parametrize(("dtype", "values"), [("uint8", range(256)), ("bool", (0, 1))])
def test_images_and_masks_need_no_range(dtype: str, values: Any, tmp_path: Path) -> None:
    loaded = load(save_script(tmp_path / "m.pt", nn.Flatten()), tmp_path, inputs=(f"input:{dtype}[4,50]",))
    assert arrays(loaded)["input"].dtype == dtype
    assert set(arrays(loaded)["input"].ravel().tolist()) <= set(values)


def test_bfloat16_and_scalars_and_empty_inputs_travel(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", Two())
    loaded = load(path, tmp_path, inputs=("image:bfloat16[]", "mask:bfloat16[0,3]"))
    assert [(array.dtype.name, array.shape) for array in arrays(loaded).values()] == [
        ("bfloat16", ()),
        ("bfloat16", (0, 3)),
    ]
    assert [tensor.dtype for tensor in sample_calls(loaded)[0].tensors()] == [torch.bfloat16] * 2


def test_unknown_and_missing_inputs_are_named_with_forward(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", Two())
    error = refused(path, tmp_path, inputs=("image:float32[2]", "other:float32[2]"))
    assert error.code == "CNV-2017"
    assert "no parameter other; mask is missing" in error.message
    assert "forward(image, mask)" in error.message


def test_model_without_samples_or_texts_names_its_parameters(tmp_path: Path) -> None:
    error = refused(save_script(tmp_path / "m.pt", Lookup()), tmp_path)
    assert error.code == "CNV-2013"
    assert "ids (int64, an index into a table)" in error.message


def test_dim_that_no_input_has_is_refused(tmp_path: Path) -> None:
    error = refused(save_script(tmp_path / "m.pt", Net()), tmp_path, inputs=("x:float32[N,4]",), dims=("M=1..4",))
    assert error.code == "CNV-2022"
    assert "names M" in error.message


# --------------------------------------------------------------------------------- given samples


def test_given_call_is_kept_as_it_is(tmp_path: Path) -> None:
    x, scale = torch.randn(2), torch.tensor(2.0)
    feats = {"a": torch.randn(2), "b": [torch.randn(2), (torch.randn(2),)]}
    torch.save(((x, feats, None), {"scale": scale}), tmp_path / "s.pt")
    loaded = load(save_torch(tmp_path / "m.pt", Nested()), tmp_path, samples=str(tmp_path / "s.pt"), allow_pickle=True)
    assert [spec.name for spec in loaded.inputs] == ["x", "feats.a", "feats.b.0", "feats.b.1.0", "scale"]
    assert (loaded.sampled, loaded.sample_count) == ("given", 1)
    call = sample_calls(loaded)[0]
    assert call.args[2] is None
    assert isinstance(call.args[1]["b"][1], tuple)
    assert call.parameter_names() == ("x", "feats", "mask")
    assert torch.equal(
        open_model(loaded, LoadOptions(path=str(tmp_path / "m.pt"), allow_pickle=True)).run(call),
        Nested()(x, feats, scale=scale),
    )


def test_none_in_the_middle_keeps_the_names(tmp_path: Path) -> None:
    torch.save(
        ((torch.ones(2), {"a": torch.ones(2), "b": [torch.ones(2), [torch.ones(2)]]}, torch.ones(2)), {}),
        tmp_path / "s.pt",
    )
    loaded = load(save_torch(tmp_path / "m.pt", Nested()), tmp_path, samples=str(tmp_path / "s.pt"), allow_pickle=True)
    assert loaded.inputs[-1].name == "mask"


def test_npz_by_name_is_bound_by_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", mask=np.ones(2, np.float32), image=np.full(2, 3, np.float32))
    loaded = load(save_script(tmp_path / "m.pt", Two()), tmp_path, samples=str(tmp_path / "s.npz"))
    assert arrays(loaded)["image"].tolist() == [3, 3]
    assert [spec.name for spec in loaded.inputs] == ["image", "mask"]


def test_npz_without_names_is_bound_in_order(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", np.full(2, 3, np.float32), np.ones(2, np.float32))
    loaded = load(save_script(tmp_path / "m.pt", Two()), tmp_path, samples=str(tmp_path / "s.npz"))
    assert arrays(loaded)["image"].tolist() == [3, 3]


def test_npz_with_strange_names_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", a=np.ones(2, np.float32), b=np.ones(2, np.float32))
    error = refused(save_script(tmp_path / "m.pt", Two()), tmp_path, samples=str(tmp_path / "s.npz"))
    assert error.code == "CNV-2017"
    assert "forward(image, mask)" in error.message


def test_numpys_float64_is_narrowed_and_reported(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.ones((2, 4)))
    loaded = load(save_script(tmp_path / "m.pt", Net()), tmp_path, samples=str(tmp_path / "s.npz"))
    assert loaded.inputs[0].dtype == "float32"
    assert any("narrowed to float32" in note.text for note in loaded.notes)


def test_folder_of_samples_is_taken_in_order_and_differing_sizes_are_symbolic(tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    for name, size in (("b", 5), ("a", 2), ("c", 2)):
        np.savez(folder / f"{name}.npz", x=np.full((size, 4), size, np.float32))
    (folder / "notes.txt").write_text("not a sample")
    loaded = load(save_script(tmp_path / "m.pt", Net()), tmp_path, samples=str(folder))
    assert loaded.sample_count == 3
    assert [arrays(loaded, index)["x"].shape[0] for index in range(3)] == [2, 5, 2]
    assert shapes(loaded) == [("x", "float32", ("x_0", 4))]


def test_texts_name_the_dimensions_of_given_samples(tmp_path: Path) -> None:
    torch.save(((torch.ones(1, 4),), {}), tmp_path / "s.pt")
    path = save_script(tmp_path / "m.pt", Net())
    loaded = load(path, tmp_path, samples=str(tmp_path / "s.pt"), inputs=("images:float32[N,4]",), dims=("N=1..8",))
    assert shapes(loaded) == [("images", "float32", ("N", 4))]
    assert loaded.dims == (DimRange(name="N", low=1, high=8),)
    assert arrays(loaded)["images"].shape == (1, 4)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("x:float16[N,4]", "float16 in --input and float32 in the samples"),
        ("x:float32[N,4,1]", "3 dimensions in --input and 2 in the samples"),
        ("x:float32[N,5]", "dimension 1 of x is 5 in --input and 4 in the samples"),
    ],
)
def test_texts_and_samples_that_contradict_are_refused(text: str, what: str, tmp_path: Path) -> None:
    torch.save(((torch.ones(1, 4),), {}), tmp_path / "s.pt")
    error = refused(save_script(tmp_path / "m.pt", Net()), tmp_path, samples=str(tmp_path / "s.pt"), inputs=(text,))
    assert error.code == "CNV-2017"
    assert what in error.message


def test_sample_outside_the_range_is_refused(tmp_path: Path) -> None:
    torch.save(((torch.ones(9, 4),), {}), tmp_path / "s.pt")
    options = {"samples": str(tmp_path / "s.pt"), "inputs": ("x:float32[N,4]",), "dims": ("N=1..8",)}
    error = refused(save_script(tmp_path / "m.pt", Net()), tmp_path, **options)
    assert "N is 9 in dimension 0 of x, which --dim does not allow" in error.message


@pytest.mark.parametrize(
    "value", [torch.ones(2, 4), (torch.ones(2, 4),), {"x": torch.ones(2, 4)}, ([torch.ones(2, 4)], {})]
)
def test_every_plain_form_of_a_sample_is_understood(value: Any, tmp_path: Path) -> None:
    torch.save(value, tmp_path / "s.pt")
    assert shapes(load(save_script(tmp_path / "m.pt", Net()), tmp_path, samples=str(tmp_path / "s.pt"))) == [
        ("x", "float32", (2, 4))
    ]


def test_callable_gives_samples(tmp_path: Path) -> None:
    (tmp_path / "feeding.py").write_text(
        "import numpy as np\ndef samples():\n    for i in range(3):\n"
        "        yield {'x': np.full((2, 4), i, np.float32)}\n"
    )
    loaded = load(save_script(tmp_path / "m.pt", Net()), tmp_path, samples=f"{tmp_path}/feeding.py:samples")
    assert [arrays(loaded, index)["x"][0, 0] for index in range(loaded.sample_count)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("make", "code", "what"),
    [
        (lambda folder: folder / "gone.npz", "CNV-2014", "no such file"),
        (lambda folder: (folder / "empty").mkdir() or folder / "empty", "CNV-2014", "no .npz or .pt"),
        (
            lambda folder: (folder / "a.npz").write_bytes(b"PK\x05\x06" + bytes(18)) and folder / "a.npz",
            "CNV-2015",
            "a.npz",
        ),
        (lambda folder: (folder / "a.pt").write_bytes(b"junk") and folder / "a.pt", "CNV-2015", "a.pt"),
        (lambda folder: save_torch(folder / "a.pt", "text"), "CNV-2015", "holds a str"),
        (lambda folder: save_torch(folder / "a.pt", Net()), "CNV-2015", "loading_files.Net"),
        (
            lambda folder: np.savez(folder / "o.npz", x=np.array([{}], dtype=object)) or folder / "o.npz",
            "CNV-2015",
            "o.npz",
        ),
        (lambda folder: "no_such_module_here:samples", "CNV-2018", "no_such_module_here"),
    ],
)
def test_samples_that_can_not_be_read_say_why(make: Any, code: str, what: str, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    error = refused(save_script(tmp_path / "m.pt", Net()), tmp_path, samples=str(make(folder)))
    assert error.code == code
    assert what in error.message


def test_failing_callable_is_named(tmp_path: Path) -> None:
    (tmp_path / "failing.py").write_text("def samples():\n    yield 1 / 0\ndef none():\n    return []\n")
    path = save_script(tmp_path / "m.pt", Net())
    assert "ZeroDivisionError" in refused(path, tmp_path, samples=f"{tmp_path}/failing.py:samples").message
    assert refused(path, tmp_path, samples=f"{tmp_path}/failing.py:none").code == "CNV-2016"


# --------------------------------------------------------------------------------- models that are not steady


def test_functional_dropout_in_a_script_is_named(tmp_path: Path) -> None:
    class Drops(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * torch.rand_like(x)

    error = refused(save_script(tmp_path / "m.pt", Drops()), tmp_path, inputs=("x:float32[64]",))
    assert error.code == "CNV-3040"
    assert "aten::rand_like" in error.message


class FunctionalDropout(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(x, 0.5, training=True)


class Around(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = FunctionalDropout()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


def test_functional_dropout_in_a_module_is_named_with_its_place(tmp_path: Path) -> None:
    path = save_torch(tmp_path / "m.pt", Around())
    error = refused(path, tmp_path, inputs=("x:float32[64]",), allow_pickle=True)
    assert error.code == "CNV-3040"
    assert "dropout in inner" in error.message


def test_random_numbers_that_change_nothing_are_no_error(tmp_path: Path) -> None:
    class Draws(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 0 * torch.rand_like(x)

    assert load(save_script(tmp_path / "m.pt", Draws()), tmp_path, inputs=("x:float32[4]",)).sample_count == 1


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


def test_state_kept_between_calls_is_an_error(tmp_path: Path) -> None:
    path = save_torch(tmp_path / "m.pt", Counts())
    error = refused(path, tmp_path, inputs=("x:float32[4]",), allow_pickle=True)
    assert error.code == "CNV-3040"
    assert "keeps state between calls" in error.message


def test_model_that_fails_on_its_sample_says_why(tmp_path: Path) -> None:
    path = save_torch(tmp_path / "m.pt", Net())
    error = refused(path, tmp_path, inputs=("x:float32[2,5]",), allow_pickle=True)
    assert error.code == "CNV-3039"
    assert "mat1 and mat2 shapes cannot be multiplied (2x5 and 4x8)" in error.message


# --------------------------------------------------------------------------------- exported programs


def dynamic(path: Path) -> Path:
    return save_program(
        path, Net().eval(), torch.randn(3, 4), dynamic_shapes=({0: torch.export.Dim("N", min=2, max=9)},)
    )


def test_program_carries_its_signature_and_range(tmp_path: Path) -> None:
    loaded = load(dynamic(tmp_path / "m.pt2"), tmp_path)
    symbol = loaded.inputs[0].shape[0]
    assert shapes(loaded) == [("x", "float32", (symbol, 4))]
    assert loaded.dims == (DimRange(name=str(symbol), low=2, high=9),)
    assert [arrays(loaded, index)["x"].shape[0] for index in (0, 1)] == [2, 3]


def test_program_keeps_its_symbols_with_given_samples_and_takes_words_for_them(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.ones((5, 4), np.float32))
    path = dynamic(tmp_path / "m.pt2")
    loaded = load(path, tmp_path, samples=str(tmp_path / "s.npz"), inputs=("x:float32[batch,4]",))
    assert shapes(loaded) == [("x", "float32", ("batch", 4))]
    assert loaded.dims == (DimRange(name="batch", low=2, high=9),)


def test_dim_outside_the_range_of_a_program_is_refused(tmp_path: Path) -> None:
    error = refused(dynamic(tmp_path / "m.pt2"), tmp_path, inputs=("x:float32[N,4]",), dims=("N=1..4",))
    assert error.code == "CNV-2022"


def test_integer_input_of_a_program_takes_the_example_in_the_file(tmp_path: Path) -> None:
    loaded = load(save_program(tmp_path / "m.pt2", Lookup().eval(), torch.tensor([4, 0, 1])), tmp_path)
    assert loaded.sampled == "given"
    assert arrays(loaded)["ids"].tolist() == [4, 0, 1]


def test_nested_program_names_leaves_by_path(tmp_path: Path) -> None:
    feats = {"a": torch.ones(2), "b": [torch.ones(2), (torch.ones(2),)]}
    path = save_program(tmp_path / "m.pt2", Nested(), torch.ones(2), feats, kwargs={"scale": torch.ones(2)})
    assert [spec.name for spec in load(path, tmp_path).inputs] == ["x", "feats.a", "feats.b.0", "feats.b.1.0", "scale"]


# --------------------------------------------------------------------------------- ONNX


def test_onnx_carries_its_signature(tmp_path: Path) -> None:
    loaded = load(save_onnx(tmp_path / "m.onnx", onnx_model(("N", 4))), tmp_path, dims=("N=2,6",))
    assert shapes(loaded) == [("x", "float32", ("N", 4))]
    assert loaded.dims == (DimRange(name="N", sizes=(2, 6), low=2, high=6),)
    assert [entry.name for entry in loaded.files] == ["samples/000.npz", "samples/001.npz"]


@pytest.mark.parametrize("shape", [(-1, 4), (None, 4)])
def test_unsaid_dimension_of_onnx_is_named_after_its_place(shape: Any, tmp_path: Path) -> None:
    assert shapes(load(save_onnx(tmp_path / "m.onnx", onnx_model(shape)), tmp_path)) == [("x", "float32", ("x_0", 4))]


def test_text_with_a_size_fixes_a_dynamic_dimension_of_onnx(tmp_path: Path) -> None:
    loaded = load(save_onnx(tmp_path / "m.onnx", onnx_model(("N", 4))), tmp_path, inputs=("x:float32[7,4]",))
    assert loaded.dims == (DimRange(name="N", sizes=(7,), low=7, high=7),)
    assert arrays(loaded)["x"].shape == (7, 4)


def test_text_with_a_word_is_an_alias_for_dim(tmp_path: Path) -> None:
    path = save_onnx(tmp_path / "m.onnx", onnx_model((None, 4)))
    loaded = load(path, tmp_path, inputs=("x:float32[batch,4]",), dims=("batch=3..5",))
    assert loaded.dims == (DimRange(name="x_0", low=3, high=5),)


def test_integer_input_of_onnx_is_not_guessed(tmp_path: Path) -> None:
    model = onnx_model()
    model.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT32, [1, 8]))
    path = save_onnx(tmp_path / "m.onnx", model)
    assert "ids (int32[1,8])" in refused(path, tmp_path).message
    assert load(path, tmp_path, inputs=("x:float32[1,4]", "ids:int32[1,8]{0..9}")).sample_count == 1


def test_onnx_samples_are_checked_by_name_dtype_and_shape(tmp_path: Path) -> None:
    path = save_onnx(tmp_path / "m.onnx", onnx_model(("N", 4)))
    for arrays_given, what in (
        ({"y": np.ones((1, 4), np.float32), "x": np.ones((1, 4), np.float32)}, "no input y"),
        ({"x": np.ones((1, 4), np.int64)}, "int64"),
        ({"x": np.ones((1, 5), np.float32)}, "dimension 1 of x is 5 where the model has 4"),
        ({"x": np.ones(4, np.float32)}, "1 dimensions"),
    ):
        np.savez(tmp_path / "s.npz", **arrays_given)
        error = refused(path, tmp_path, samples=str(tmp_path / "s.npz"))
        assert (error.code, what in error.message) == ("CNV-2017", True)


def test_onnx_takes_call_samples_in_order(tmp_path: Path) -> None:
    torch.save(((torch.full((2, 4), 7.0),), {}), tmp_path / "s.pt")
    loaded = load(save_onnx(tmp_path / "m.onnx", onnx_model(("N", 4))), tmp_path, samples=str(tmp_path / "s.pt"))
    assert arrays(loaded)["x"][0, 0] == 7


def test_onnx_input_of_unknown_rank_needs_a_text(tmp_path: Path) -> None:
    path = save_onnx(tmp_path / "m.onnx", onnx_model(None))  # type: ignore[arg-type]
    assert refused(path, tmp_path).code == "CNV-2013"
    assert shapes(load(path, tmp_path, inputs=("x:float32[5,4]",))) == [("x", "float32", ("x_0", "x_1"))]


@pytest.mark.parametrize(
    ("old", "new"), [(b"MatMul", b"\xff\xfetMul"), (b"\x22\x06MatMul", b"\x27\x06MatMul")], ids=["name", "wire type"]
)
def test_damage_inside_an_onnx_graph_is_found(old: bytes, new: bytes, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(onnx_model().SerializeToString().replace(old, new))
    assert refused(tmp_path / "m.onnx", tmp_path).code == "CNV-3016"


def test_onnx_input_that_is_no_tensor_is_refused(tmp_path: Path) -> None:
    model = onnx_model()
    model.graph.input.append(helper.make_tensor_value_info("text", TensorProto.STRING, [1]))
    error = refused(save_onnx(tmp_path / "m.onnx", model), tmp_path)
    assert error.code == "CNV-3041"
    assert "text (string)" in error.message
