"""Files that are no model: each ends with its own code and says what it is."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from loading_files import field, save_onnx, save_script
from torch import nn

from convert.errors import LoadError
from convert.loading.sniff import identify

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 14808534\n"
SAVED_MODEL = field(1, 1) + field(2, field(1, field(4, b"serve")) + field(2, b""))
GRAPH_DEF = field(1, field(1, b"input") + field(2, b"Placeholder")) + field(4, field(1, 22))
PADDLE = field(1, field(1, 0) + field(2, 0) + field(3, b"\x0a\x01x")) + field(4, field(1, 0))
PADDLE_WEIGHTS = bytes(16) + (4).to_bytes(4, "little") + b"\x08\x05\x10\x02" + bytes(8)
MINDIR = field(1, b"0.1.0") + field(2, b"MindSpore") + field(3, b"2.3.0") + field(6, field(2, b"graph"))
MINDSPORE = field(1, field(1, b"conv.weight") + field(2, field(1, 2) + field(2, b"Float32") + field(3, bytes(8))))
CAFFE = field(1, b"LeNet") + field(100, field(1, b"conv1") + field(2, b"Convolution"))
OLD_CAFFE = field(1, b"LeNet") + field(2, field(4, b"conv1") + field(5, 4))
CORE_ML = field(1, 5) + field(2, b"\x0a\x00") + field(500, b"")


def tar_of(name: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        archive.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()


def zip_of(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, b"x")
    return buffer.getvalue()


def npz() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, weights=np.ones(2))
    return buffer.getvalue()


FOREIGN: dict[str, tuple[bytes, str, str, str]] = {
    "git-lfs pointer": (LFS, "CNV-3005", "git-lfs", "git lfs pull"),
    "web page": (b"<!DOCTYPE html>\n<html><head></head></html>", "CNV-3006", "HTML", "download"),
    "web page behind a byte-order mark": (b"\xef\xbb\xbf \n<HTML lang=zh>", "CNV-3006", "HTML", "download"),
    "zip of documents": (zip_of("word/document.xml"), "CNV-3008", "word/document.xml", "unpack"),
    "empty zip": (zip_of(), "CNV-3008", "nothing", "unpack"),
    "npz": (npz(), "CNV-3009", "weights.npy", "--samples"),
    "npy": (b"\x93NUMPY\x01\x00v\x00{}", "CNV-3009", "npy", "--samples"),
    "SavedModel": (SAVED_MODEL, "CNV-3010", "SavedModel", "tf2onnx.convert --saved-model"),
    "GraphDef": (GRAPH_DEF, "CNV-3010", "GraphDef", "--graphdef model.bin"),
    "Keras HDF5": (b"\x89HDF\r\n\x1a\n" + bytes(80), "CNV-3010", "HDF5", "--keras model.bin"),
    "Keras 3": (zip_of("config.json", "metadata.json", "model.weights.h5"), "CNV-3010", "Keras 3", "--keras"),
    "TFLite": (b"\x1c\x00\x00\x00TFL3" + bytes(40), "CNV-3010", "Lite", "--tflite model.bin"),
    "TensorFlow.js": (b'{"format": "graph-model", "modelTopology": {}}', "CNV-3010", "TensorFlow.js", "--tfjs"),
    "Paddle program": (PADDLE, "CNV-3011", "pdmodel", "paddle2onnx"),
    "Paddle weights": (PADDLE_WEIGHTS, "CNV-3011", "pdiparams", "paddle2onnx"),
    "Paddle PIR": (b'{"base_code": {"magic": "pir"}}', "CNV-3011", "PIR", "paddle2onnx"),
    "MindIR": (MINDIR, "CNV-3012", "MindIR", "mindspore.export"),
    "MindSpore checkpoint": (MINDSPORE, "CNV-3012", "checkpoint", "mindspore.export"),
    "Caffe": (CAFFE, "CNV-3013", "Caffe", "caffe2onnx"),
    "Caffe, older": (OLD_CAFFE, "CNV-3013", "Caffe", "caffe2onnx"),
    "prototxt": (b'name: "LeNet"\nlayer {\n  name: "data"\n}\n', "CNV-3013", "prototxt", "caffe2onnx"),
    "Core ML": (CORE_ML, "CNV-3013", "Core ML", "PyTorch"),
    "OpenVINO": (b'<?xml version="1.0"?>\n<net name="m" version="11">', "CNV-3013", "OpenVINO", "ONNX"),
    "GGUF": (b"GGUF\x03\x00\x00\x00", "CNV-3013", "GGUF", "safetensors"),
    "Ascend offline model": (b"IMOD" + bytes(60), "CNV-3013", ".om", "made from"),
    "ExecuTorch": (b"\x20\x00\x00\x00ET12" + bytes(40), "CNV-3013", "ExecuTorch", "PyTorch"),
    "gzip": (gzip.compress(b"x"), "CNV-3014", "gzip", "unpack"),
    "xz": (lzma.compress(b"x"), "CNV-3014", "xz", "unpack"),
    "zstd": (b"\x28\xb5\x2f\xfd\x00", "CNV-3014", "zstd", "unpack"),
    "tar of something": (tar_of("weights/model.pt"), "CNV-3014", "weights/model.pt", "unpack"),
    "text": (b"hello, world, this is a note\n", "CNV-3015", "'hello, world, this is a note'", "TorchScript"),
    "bytes": (bytes(range(200, 256)), "CNV-3015", "c8 c9 ca", "TorchScript"),
    "damaged pickle": (b"\x80\x02}q\x00(X\xff\xff\xff\xff", "CNV-3021", "damaged", "sha256"),
    "pickle of no model": (b"\x80\x02csklearn.svm\nSVC\n)\x81.", "CNV-3023", "sklearn.svm.SVC", "torch.save"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_what_is_no_model_is_named_with_what_to_do(name: str, tmp_path: Path) -> None:
    content, code, what, hint = FOREIGN[name]
    path = tmp_path / "model.bin"
    path.write_bytes(content)
    with pytest.raises(LoadError) as raised:
        identify(path)
    assert raised.value.code == code
    assert what in raised.value.message
    assert "model.bin" in raised.value.message
    assert hint in raised.value.hint


def test_missing_file_names_its_neighbours(tmp_path: Path) -> None:
    save_script(tmp_path / "resnet18.pt", nn.ReLU())
    with pytest.raises(LoadError, match="is not there") as raised:
        identify(tmp_path / "resnet.pt")
    assert raised.value.code == "CNV-3001"
    assert "resnet18.pt" in raised.value.hint


def test_dangling_link_is_missing(tmp_path: Path) -> None:
    (tmp_path / "model.pt").symlink_to(tmp_path / "gone.pt")
    with pytest.raises(LoadError, match="a link to nothing") as raised:
        identify(tmp_path / "model.pt")
    assert raised.value.code == "CNV-3001"


def test_endless_link_is_unreadable(tmp_path: Path) -> None:
    (tmp_path / "model.pt").symlink_to("model.pt")
    with pytest.raises(LoadError) as raised:
        identify(tmp_path / "model.pt")
    assert raised.value.code == "CNV-3002"


def test_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.pt")
    with pytest.raises(LoadError, match="no regular file") as raised:
        identify(tmp_path / "model.pt")
    assert raised.value.code == "CNV-3002"


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_file_without_permission_is_unreadable(tmp_path: Path) -> None:
    path = save_onnx(tmp_path / "model.onnx")
    path.chmod(0)
    with pytest.raises(LoadError) as raised:
        identify(path)
    assert raised.value.code == "CNV-3002"


def test_empty_file_says_so(tmp_path: Path) -> None:
    (tmp_path / "model.pt").touch()
    with pytest.raises(LoadError, match=r"empty file \(0 bytes\)") as raised:
        identify(tmp_path / "model.pt")
    assert raised.value.code == "CNV-3004"


def test_folder_lists_the_models_inside(tmp_path: Path) -> None:
    (tmp_path / "run" / "weights").mkdir(parents=True)
    save_script(tmp_path / "run" / "weights" / "best.pt", nn.ReLU())
    with pytest.raises(LoadError, match="is a folder") as raised:
        identify(tmp_path / "run")
    assert raised.value.code == "CNV-3003"
    assert "weights/best.pt" in raised.value.hint


def test_saved_model_folder_names_its_converter(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(SAVED_MODEL)
    with pytest.raises(LoadError, match="SavedModel") as raised:
        identify(tmp_path)
    assert raised.value.code == "CNV-3010"


def test_core_ml_package_is_named(tmp_path: Path) -> None:
    (tmp_path / "Data" / "com.apple.CoreML").mkdir(parents=True)
    with pytest.raises(LoadError, match="Core ML") as raised:
        identify(tmp_path)
    assert raised.value.code == "CNV-3013"


@pytest.mark.parametrize("keep", [0.01, 0.3, 0.6, 0.95])
def test_truncated_zip_says_its_size(keep: float, tmp_path: Path) -> None:
    path = save_script(tmp_path / "model.pt", nn.Linear(64, 64))
    data = path.read_bytes()
    path.write_bytes(data[: max(30, int(len(data) * keep))])
    with pytest.raises(LoadError, match="cut short") as raised:
        identify(path)
    assert raised.value.code == "CNV-3007"
    assert f"{path.stat().st_size:,} bytes" in raised.value.message


def write_zip(path: Path, members: dict[str, bytes], compress: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compress) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data, compress)
    return path


@pytest.mark.parametrize("name", ["m/../../evil", "/etc/passwd", "m\\..\\evil"])
def test_zip_whose_members_point_outside_is_refused(name: str, tmp_path: Path) -> None:
    path = write_zip(tmp_path / "m.pt", {"m/data.pkl": b"\x80\x02N.", name: b"x"})
    with pytest.raises(LoadError, match="points outside") as raised:
        identify(path)
    assert raised.value.code == "CNV-3020"


def test_zip_that_expands_absurdly_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "m.pt", {"m/data.pkl": b"N."}, zipfile.ZIP_DEFLATED)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive, archive.open("m/data/0", "w") as member:
        for _ in range(300):
            member.write(bytes(1 << 20))
    with pytest.raises(LoadError, match="that expand to") as raised:
        identify(path)
    assert raised.value.code == "CNV-3020"


def test_zip_with_a_member_twice_is_refused(tmp_path: Path) -> None:
    path = write_zip(tmp_path / "m.pt", {"m/data.pkl": b"\x80\x02N."})
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("m/data.pkl", b"other")
    with pytest.raises(LoadError, match="listed twice") as raised:
        identify(path)
    assert raised.value.code == "CNV-3020"


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ((1 << 62).to_bytes(8, "little"), ""),
        ((1 << 31).to_bytes(8, "little"), "larger than the file"),
        ((9).to_bytes(8, "little"), "no JSON"),
        ((2).to_bytes(8, "little"), "within the file"),
    ],
    ids=["absurd length", "huge length", "broken JSON", "fine header, no data"],
)
def test_damaged_safetensors_header_is_refused(head: bytes, why: str, tmp_path: Path) -> None:
    header = b'{"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}'
    if why == "within the file":
        head = len(header).to_bytes(8, "little")
    path = tmp_path / "model.safetensors"
    path.write_bytes(head + header)
    with pytest.raises(LoadError) as raised:
        identify(path)
    assert raised.value.code == ("CNV-3022" if why else "CNV-3015")
    assert why in raised.value.message
