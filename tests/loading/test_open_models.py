"""Opening torch models: eval mode, weights, trust, and one clean line for what can't be opened."""

from __future__ import annotations

import importlib
import sys
import textwrap
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from loading_files import (
    NET_SOURCE,
    Evil,
    Net,
    quietly,
    rezip,
    save_old_program,
    save_program,
    save_safetensors,
    save_script,
    save_tar,
    save_torch,
)
from torch import nn

from convert.errors import ConvertError, LoadError, UsageError
from convert.loading.sniff import identify
from convert.loading.torch_models import OpenModel, open_file
from convert.values import LoadOptions


def opened(path: Path, **options: Any) -> OpenModel:
    return open_file(identify(path), LoadOptions(path=str(path), **options))


def refused(path: Path, **options: Any) -> ConvertError:
    with pytest.raises(ConvertError) as raised:
        opened(path, **options)
    assert "\n" not in raised.value.message
    return raised.value


@pytest.fixture
def source(tmp_path: Path, request: pytest.FixtureRequest) -> str:
    """The name of a module of the user's own, beside the model."""
    name = f"zoo_{len(request.node.name)}_{request.node.name[5:12]}"
    (tmp_path / f"{name}.py").write_text(NET_SOURCE)
    return name


def save_user_module(path: Path, source: str, *, train: bool = False, wrap: bool = False) -> Path:
    """Save a module whose class stands in the user's own file beside it, then forget that file."""
    sys.path.insert(0, str(path.parent))
    importlib.invalidate_caches()
    try:
        module = importlib.import_module(source).make().train(train)
        save_torch(path, {"model": module} if wrap else module)
    finally:
        sys.path.remove(str(path.parent))
        del sys.modules[source]
    return path


# --------------------------------------------------------------------------------- TorchScript


def test_script_saved_in_training_mode_is_put_into_eval_mode(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.9)).train()
    model = opened(save_script(tmp_path / "m.pt", module))
    x = torch.ones(8, 2)
    assert torch.equal(model.module(x), model.module(x))


def test_trace_frozen_in_training_mode_is_refused(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5)).train()
    error = refused(save_script(tmp_path / "m.pt", module, torch.ones(3, 2), trace=True))
    assert error.code == "CNV-3032"
    assert "batch_norm 1" in error.message
    assert "dropout (p=0.5)" in error.message


def test_batch_norm_without_running_statistics_is_right_as_it_is(tmp_path: Path) -> None:
    module = nn.Sequential(nn.BatchNorm1d(2, track_running_stats=False)).eval()
    assert opened(save_script(tmp_path / "m.pt", module, torch.ones(3, 2), trace=True)).kind == "torchscript"


class OnCuda(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros(2, device=torch.device("cuda:0"))


class OnCudaInManyWays(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        moved = (x * 2).cuda() - x.to("cuda:0") + torch.zeros(2, device="cuda")
        return moved + torch.zeros_like(x, device=torch.device("cuda", 1)) - 0 * x.cuda()


def test_every_way_to_name_cuda_is_rewritten(tmp_path: Path) -> None:
    model = opened(save_script(tmp_path / "m.pt", OnCudaInManyWays()))
    assert torch.equal(model.module(torch.ones(2)), torch.ones(2))


def test_cuda_device_in_the_code_is_rewritten_and_reported(tmp_path: Path) -> None:
    model = opened(save_script(tmp_path / "m.pt", OnCuda()))
    assert torch.equal(model.module(torch.ones(2)), torch.ones(2))
    assert [note.text for note in model.notes] == ["its code names cuda:0; it was rewritten to the CPU"]


def test_other_device_in_the_code_is_named(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", OnCuda())
    rezip(path, lambda name, data: data.replace(b"cuda:0", b"npu:3") if name.endswith(".py") else data)
    error = refused(path)
    assert error.code == "CNV-3030"
    assert '"npu:3" in code/__torch__' in error.message


def test_code_that_asks_for_its_device_is_not_bound_to_it(tmp_path: Path) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 8, batch_first=True).eval()
    path = tmp_path / "m.pt"
    torch.jit.script(layer).save(path)
    with zipfile.ZipFile(path) as archive:
        assert any(b'["cpu", "cuda"' in archive.read(name) for name in archive.namelist() if name.endswith(".py"))
    assert opened(path).notes == ()


def test_script_without_forward_lists_its_methods(tmp_path: Path) -> None:
    class Coder(nn.Module):
        @torch.jit.export
        def encode(self, x: torch.Tensor) -> torch.Tensor:
            return x

        @torch.jit.export
        def decode(self, x: torch.Tensor) -> torch.Tensor:
            return x

    error = refused(save_script(tmp_path / "m.pt", Coder()))
    assert error.code == "CNV-3029"
    assert "decode(), encode()" in error.message


def test_script_that_writes_files_is_refused_unrun(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", nn.ReLU())
    rezip(path, lambda name, data: data + b"\n# ops.aten.save(x, 'f')\n" if name.endswith(".py") else data)
    error = refused(path)
    assert error.code == "CNV-3035"
    assert "ops.aten.save" in error.message


def test_damaged_script_is_one_clean_line(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", nn.Linear(2, 2))
    rezip(path, lambda name, data: b"class" if name.endswith(".py") else data)
    error = refused(path)
    assert error.code == "CNV-3028"
    assert torch.__version__ in error.message


def test_script_of_half_weights_is_widened(tmp_path: Path) -> None:
    model = opened(save_script(tmp_path / "m.pt", nn.Linear(2, 2).half()))
    assert model.was_half
    assert model.module(torch.ones(1, 2)).dtype == torch.float32


def test_index_of_an_embedding_is_known_to_be_int64(tmp_path: Path) -> None:
    class Lookup(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = nn.Embedding(5, 2)

        def forward(self, ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
            return self.table(ids) * scale

    model = opened(save_script(tmp_path / "m.pt", Lookup()))
    assert model.signature.described() == "ids (int64, an index into a table), scale (Tensor)"


def test_factory_for_an_archive_is_reported_as_unused(tmp_path: Path) -> None:
    model = opened(save_script(tmp_path / "m.pt", nn.ReLU()), factory="x:y")
    assert "the factory was not used" in model.notes[0].text


# --------------------------------------------------------------------------------- exported programs


@pytest.mark.parametrize("save", [save_program, save_old_program], ids=["now", "flat layout"])
def test_program_gives_what_its_module_gave(save: Any, tmp_path: Path) -> None:
    module = Net().eval()
    x = torch.randn(3, 4)
    model = opened(save(tmp_path / "m.pt", module, x))
    assert torch.allclose(model.module(x), module(x))
    assert model.signature.positional == ("x",)


def test_program_captured_in_training_mode_names_the_module(tmp_path: Path) -> None:
    error = refused(
        save_program(tmp_path / "m.pt2", nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.4)).train(), torch.ones(1, 2))
    )
    assert error.code == "CNV-3032"
    assert "1 (Dropout)" in error.message


# --------------------------------------------------------------------------------- pickles


def test_pickled_module_needs_permission_and_names_its_class(tmp_path: Path, source: str) -> None:
    path = save_user_module(tmp_path / "m.pt", source)
    error = refused(path)
    assert error.code == "CNV-3036"
    assert f"{source}.Net" in error.message
    assert "--allow-pickle" in error.hint


def test_permitted_pickle_finds_its_code_beside_the_file(tmp_path: Path, source: str) -> None:
    model = opened(save_user_module(tmp_path / "m.pt", source, train=True), allow_pickle=True)
    assert not any(part.training for part in model.module.modules())
    assert "put into eval mode" in model.notes[0].text


@pytest.mark.parametrize("old", [False, True], ids=["zip", "before 1.6"])
def test_hostile_pickle_never_runs_unasked(old: bool, tmp_path: Path) -> None:
    error = refused(save_torch(tmp_path / "m.pt", {"model": Evil(tmp_path / "PWNED"), "w": torch.ones(1)}, old=old))
    assert error.code == "CNV-3036"
    assert "io.open" in error.message
    assert not (tmp_path / "PWNED").exists()


def test_missing_module_of_a_pickle_is_named(tmp_path: Path, source: str) -> None:
    path = save_user_module(tmp_path / "m.pt", source, wrap=True)
    (tmp_path / f"{source}.py").unlink()
    error = refused(path, allow_pickle=True)
    assert error.code == "CNV-3033"
    assert f"No module named '{source}'" in error.message
    assert "PYTHONPATH" in error.hint


def test_missing_class_of_a_pickle_is_named(tmp_path: Path, source: str) -> None:
    path = save_user_module(tmp_path / "m.pt", source)
    (tmp_path / f"{source}.py").write_text("x = 1\n")
    error = refused(path, allow_pickle=True)
    assert error.code == "CNV-3033"
    assert f"{source}.Net" in error.message


def test_half_weights_of_a_module_are_widened_and_reported(tmp_path: Path) -> None:
    model = opened(save_torch(tmp_path / "m.pt", Net().half()), allow_pickle=True)
    assert model.module.first.weight.dtype == torch.float32
    assert any("widened to float32" in note.text for note in model.notes)


class Stubborn(nn.Module):
    """Its dropout stays in training mode, whatever is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def train(self, mode: bool = True) -> Stubborn:
        self.training = mode
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.drop(x)


def test_dropout_that_stays_in_training_mode_is_named(tmp_path: Path) -> None:
    error = refused(save_torch(tmp_path / "m.pt", Stubborn()), allow_pickle=True)
    assert error.code == "CNV-3032"
    assert "drop (Dropout)" in error.message


def test_module_is_taken_out_of_its_wrapper_and_reported(tmp_path: Path) -> None:
    model = opened(save_torch(tmp_path / "m.pt", nn.DataParallel(Net())), allow_pickle=True)
    assert type(model.module) is Net
    assert "DataParallel" in model.notes[0].text


def test_quantized_module_is_named(tmp_path: Path) -> None:
    quantize = quietly(lambda: __import__("torch.ao.quantization", fromlist=["quantize_dynamic"]).quantize_dynamic)
    module = quietly(lambda: quantize(Net().eval(), {nn.Linear}, dtype=torch.qint8))
    error = refused(save_torch(tmp_path / "m.pt", module), allow_pickle=True)
    assert error.code == "CNV-3031"
    assert "first (Linear)" in error.message


# --------------------------------------------------------------------------------- weights, factories


@pytest.fixture
def factory(tmp_path: Path) -> str:
    (tmp_path / "made.py").write_text(NET_SOURCE)
    return f"{tmp_path / 'made.py'}:make"


@pytest.mark.parametrize(
    "prefix",
    ["", "module.", "_orig_mod.", "_orig_mod.module.", "model."],
    ids=["none", "ddp", "compile", "both", "wrapper"],
)
def test_prefix_of_all_keys_is_taken_off_and_reported(prefix: str, tmp_path: Path, factory: str) -> None:
    weights = Net().state_dict()
    path = save_torch(tmp_path / "w.pt", {prefix + key: value for key, value in weights.items()})
    model = opened(path, factory=factory)
    assert torch.equal(model.module.first.weight, weights["first.weight"])
    assert [note.text for note in model.notes] == (
        [f"all weights are named {prefix}…; the prefix was taken off"] if prefix else []
    )


@pytest.mark.parametrize("key", ["ema", "model", "state_dict", "model_state_dict"])
def test_weights_in_a_checkpoint_are_found_and_reported(key: str, tmp_path: Path, factory: str) -> None:
    weights = Net().state_dict()
    model = opened(save_torch(tmp_path / "w.pt", {"epoch": 1, key: weights}), factory=factory)
    assert torch.equal(model.module.last.bias, weights["last.bias"])
    assert model.notes[0].text == f"took the entry {key!r} of the checkpoint"


def test_averaged_weights_come_first(tmp_path: Path, factory: str) -> None:
    averaged = Net().state_dict()
    path = save_torch(tmp_path / "w.pt", {"model": Net().state_dict(), "ema": {"module": averaged, "updates": 9}})
    model = opened(path, factory=factory)
    assert torch.equal(model.module.last.bias, averaged["last.bias"])
    assert model.notes[0].text == "took the entry 'ema.module' of the checkpoint"


def test_safetensors_need_and_take_a_factory(tmp_path: Path, factory: str) -> None:
    weights = Net().state_dict()
    path = save_safetensors(tmp_path / "w.bin", weights)
    assert refused(path).code == "CNV-3034"
    assert torch.equal(opened(path, factory=factory).module.first.weight, weights["first.weight"])


def test_weights_from_before_1_6_are_loaded(tmp_path: Path, factory: str) -> None:
    weights = Net().state_dict()
    model = opened(save_torch(tmp_path / "w.pt", {"state_dict": weights}, old=True), factory=factory)
    assert torch.equal(model.module.first.weight, weights["first.weight"])


def test_tar_of_the_first_versions_needs_permission(tmp_path: Path) -> None:
    error = refused(save_tar(tmp_path / "m.tar"))
    assert error.code == "CNV-3036"
    assert "tar of the first PyTorch versions" in error.message


def test_tied_weights_stored_once_are_found(tmp_path: Path) -> None:
    (tmp_path / "tied.py").write_text(
        "from torch import nn\nclass Tied(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.embed = nn.Embedding(5, 3)\n        self.head = nn.Linear(3, 5, bias=False)\n"
        "        self.head.weight = self.embed.weight\n    def forward(self, x):\n        return self.head(x)\n"
    )
    path = save_safetensors(tmp_path / "w.safetensors", {"embed.weight": torch.ones(5, 3)})
    model = opened(path, factory=f"{tmp_path}/tied.py:Tied")
    assert torch.equal(model.module.head.weight, torch.ones(5, 3))


def test_script_of_a_newer_version_names_both_versions(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", nn.ReLU())
    rezip(path, lambda name, data: b"99\n" if name.endswith("version") else data)
    error = refused(path)
    assert error.code == "CNV-3028"
    assert "version 99" in error.message
    assert "maximum supported version for reading is" in error.message


def test_class_of_the_saving_script_is_explained(tmp_path: Path, source: str) -> None:
    path = save_user_module(tmp_path / "m.pt", source)
    rezip(path, lambda name, data: data.replace(f"{source}\nNet".encode(), b"__main__\nNet"))
    error = refused(path, allow_pickle=True)
    assert error.code == "CNV-3033"
    assert "module of its own" in error.hint


def test_weights_without_a_factory_show_their_keys(tmp_path: Path) -> None:
    error = refused(save_torch(tmp_path / "w.pt", Net().state_dict()))
    assert error.code == "CNV-3034"
    assert "state_dict of 9 tensors" in error.message
    assert "first.weight [8, 4]" in error.message
    assert "--factory" in error.hint


def test_every_mismatch_is_listed_with_both_shapes(tmp_path: Path, factory: str) -> None:
    weights = Net(classes=7).state_dict()
    weights["extra"] = weights.pop("first.bias")
    error = refused(save_torch(tmp_path / "w.pt", weights), factory=factory)
    assert error.code == "CNV-3026"
    for part in (
        "last.weight is [7, 8] in the file and [2, 8] in the model",
        "last.bias is [7] in the file and [2] in the model",
        "first.bias is not in the file",
        "extra is not in the model",
    ):
        assert part in error.message


def test_factory_takes_arguments(tmp_path: Path, factory: str) -> None:
    path = save_torch(tmp_path / "w.pt", Net(classes=7).state_dict())
    assert opened(path, factory=factory, factory_args=("classes=7",)).module.last.out_features == 7


def test_factory_of_a_package_is_found_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_nets").mkdir()
    (tmp_path / "my_nets" / "__init__.py").write_text(NET_SOURCE)
    monkeypatch.chdir(tmp_path)
    path = save_torch(tmp_path / "w.pt", Net().state_dict())
    assert opened(path, factory="my_nets:Net").kind == "module"


def test_checkpoint_without_a_model_lists_what_it_holds(tmp_path: Path, factory: str) -> None:
    error = refused(save_torch(tmp_path / "w.pt", {"epoch": 3, "history": [1, 2]}), factory=factory)
    assert error.code == "CNV-3025"
    assert "epoch (int), history (list)" in error.message


@pytest.mark.parametrize(
    ("text", "code", "what"),
    [
        ("nothing", "CNV-2018", "package.module:callable"),
        ("no_such_module_here:make", "CNV-2018", "no module 'no_such_module_here'"),
        ("{folder}/gone.py:make", "CNV-2018", "there is no file"),
        ("{folder}/made.py:build", "CNV-2018", "no callable 'build'"),
        ("{folder}/broken.py:make", "CNV-2019", "importing"),
        ("{folder}/fails.py:make", "CNV-3027", "ValueError: no GPU today"),
        ("{folder}/fails.py:number", "CNV-3027", "gave a int"),
    ],
)
def test_bad_factory_says_what_is_wrong(text: str, code: str, what: str, tmp_path: Path, factory: str) -> None:
    (tmp_path / "broken.py").write_text("import no_such_thing\n")
    (tmp_path / "fails.py").write_text(
        "def make():\n    raise ValueError('no GPU today')\ndef number():\n    return 3\n"
    )
    path = save_torch(tmp_path / "w.pt", Net().state_dict())
    error = refused(path, factory=text.replace("{folder}", str(tmp_path)))
    assert error.code == code
    assert what in error.message


def test_factory_file_beside_the_model_is_suggested_not_run(
    tmp_path: Path, factory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    error = refused(save_torch(tmp_path / "w.pt", Net().state_dict()), factory="made.py:make")
    assert str(tmp_path / "made.py") in error.hint


def test_bad_factory_arguments_are_named_at_once(tmp_path: Path, factory: str) -> None:
    path = save_torch(tmp_path / "w.pt", Net().state_dict())
    error = refused(path, factory=factory, factory_args=("classes", "=3", "ok=1"))
    assert isinstance(error, UsageError)
    assert "'classes', '=3'" in error.message


# --------------------------------------------------------------------------------- running


def test_model_is_opened_once_per_process(tmp_path: Path) -> None:
    path = save_script(tmp_path / "m.pt", nn.ReLU())
    assert opened(path) is opened(path)


def test_any_exception_of_user_code_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        textwrap.dedent(
            """
            class Strange(Exception):
                pass
            def make():
                raise Strange("\\x1b[31mred\\x1b[0m\\nsecond line\\nframe #0: something in libc")
            """
        )
    )
    error = refused(save_torch(tmp_path / "w.pt", Net().state_dict()), factory=f"{tmp_path}/odd.py:make")
    assert isinstance(error, LoadError)
    assert error.message.endswith("Strange: red")
