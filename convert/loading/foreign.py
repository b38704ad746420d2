"""Files that are no PyTorch or ONNX model: what each is, and what to do with it.

Signatures are magic numbers of the formats, or field numbers of their protobuf schemas; the schema is named beside.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec

from convert.errors import LoadError
from convert.loading.wire import LEN, VARINT, Field, WireError, fields

TF_HINT = "convert it to ONNX first: python -m tf2onnx.convert --{flag} {name} --output model.onnx --opset 17"
PADDLE_HINT = (
    "convert it to ONNX first: paddle2onnx --model_dir FOLDER --model_filename inference.pdmodel "
    "--params_filename inference.pdiparams --save_file model.onnx"
)
MINDSPORE_HINT = "export ONNX from MindSpore: mindspore.export(net, inputs, file_name='model', file_format='ONNX')"
CAFFE_HINT = "convert it to ONNX first, with caffe2onnx or MMdnn (Ascend's atc also takes Caffe: --framework=0)"
UNPACK_HINT = "unpack it first and give the model file inside"


class Foreign(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of file that can't be loaded: its code, what it is, and what to do."""

    code: str
    what: str
    hint: str

    def error(self, path: Path) -> LoadError:
        """The error for one file of this kind."""
        return LoadError(self.code, f"{path.name} is {self.what}", hint=self.hint.format(name=path.name))


def tensorflow(what: str, flag: str) -> Foreign:
    """A TensorFlow or Keras file that tf2onnx takes with ``--flag``."""
    return Foreign(code="CNV-3010", what=what, hint=TF_HINT.format(flag=flag, name="{name}"))


def packed(kind: str) -> Foreign:
    """A compressed file."""
    return Foreign(code="CNV-3014", what=f"compressed ({kind})", hint=UNPACK_HINT)


def other(what: str, hint: str) -> Foreign:
    """A model of a toolchain that no ONNX converter serves, or that is compiled already."""
    return Foreign(code="CNV-3013", what=what, hint=hint)


def text(what: str, hint: str) -> Foreign:
    """A text that stands in a model's place."""
    return Foreign(code="CNV-3015", what=f"{what}, not a model", hint=hint)


KERAS = tensorflow("a Keras model in HDF5", "keras")
KERAS_ZIP = tensorflow("a Keras 3 model (.keras)", "keras")
TFLITE = tensorflow("a TensorFlow Lite model", "tflite")
SAVED_MODEL = Foreign(
    code="CNV-3010",
    what="a TensorFlow SavedModel graph (saved_model.pb)",
    hint="convert the folder it lies in: python -m tf2onnx.convert --saved-model FOLDER --output model.onnx --opset 17",
)
GRAPH_DEF = Foreign(
    code="CNV-3010",
    what="a frozen TensorFlow graph (GraphDef)",
    hint="convert it to ONNX first: python -m tf2onnx.convert --graphdef {name} --inputs IN:0 --outputs OUT:0 "
    "--output model.onnx --opset 17",
)
PADDLE = Foreign(code="CNV-3011", what="a PaddlePaddle program (.pdmodel)", hint=PADDLE_HINT)
PADDLE_WEIGHTS = Foreign(code="CNV-3011", what="a file of PaddlePaddle weights (.pdiparams)", hint=PADDLE_HINT)
MINDIR = Foreign(code="CNV-3012", what="a MindSpore MindIR graph", hint=MINDSPORE_HINT)
MINDSPORE_WEIGHTS = Foreign(code="CNV-3012", what="a MindSpore checkpoint (weights only)", hint=MINDSPORE_HINT)
CAFFE = Foreign(code="CNV-3013", what="a Caffe model (.caffemodel)", hint=CAFFE_HINT)
CAFFE_TEXT = Foreign(code="CNV-3013", what="a Caffe network description (.prototxt)", hint=CAFFE_HINT)
HTML = Foreign(
    code="CNV-3006",
    what="an HTML page, not a model: a download page or an error page was saved in its place",
    hint="open the page in a browser to see what it says, then download the file itself",
)
LFS = Foreign(
    code="CNV-3005",
    what="a git-lfs pointer: the repository was cloned without git-lfs, the model itself is not here",
    hint="run `git lfs install && git lfs pull` in the repository, or download the file itself",
)
NUMPY = Foreign(
    code="CNV-3009",
    what="a numpy array (.npy), not a model",
    hint="arrays go to --samples (as .npz by input name); give the model file here",
)
TENSORFLOW_CHECKPOINT = Foreign(
    code="CNV-3010",
    what="a TensorFlow checkpoint index (weights only)",
    hint="export a SavedModel from the code that made it, then: python -m tf2onnx.convert --saved-model FOLDER "
    "--output model.onnx",
)
CORE_ML = other("a Core ML model", "give the PyTorch model that it was made from")

GGML = other("a GGML model (llama.cpp, before GGUF)", "give the PyTorch or safetensors model that it was made from")
ANSWER_HINT = "a server answered instead of sending the file: look at what it says, log in, and download it again"
# Patterns of a text's start, lower case, and what such a text is; the first that matches counts.
TEXTS: tuple[tuple[bytes, Foreign], ...] = (
    (rb'\{[^{}]*"(metadata|weight_map)"\s*:\s*\{', text(
        "the index of a model in several files (JSON)",
        "load the shards where the model's code is and save them as one: a state_dict, or better a .pt2",
    )),
    (rb'\{\s*"(ir_?version|producer_?name|opset_?import)"', text(
        "an ONNX model in JSON", "write it as protobuf: onnx.save(onnx.load(FILE, format='json'), 'model.onnx')"
    )),
    (rb"(ir_version|producer_name)\s*:", text(
        "an ONNX model in protobuf's text form",
        "write it as protobuf: onnx.save(onnx.load(FILE, format='textproto'), 'model.onnx')",
    )),
    (rb"<\s*ir_version\s*:", text(
        "an ONNX model in ONNX's text form",
        "write it as protobuf: onnx.save(onnx.load(FILE, format='onnxtxt'), 'model.onnx')",
    )),
    (rb'\{[^{}]*"(error|message|detail|status)"\s*:', text("a JSON document with a server's error", ANSWER_HINT)),
    (rb'\{[^{}]*"(architectures|model_type|_name_or_path)"\s*:', text(
        "the configuration of a Hugging Face model (JSON)", "give the weights beside it, with --factory for their code"
    )),
    (rb'[\[{]\s*(["\[{\]}]|-?\d)', text("a JSON document", "give the model file")),
    (rb"<(\?xml|error)\b", text("an XML document, as servers send in place of a file", ANSWER_HINT)),
    (rb"(entry not found|access denied|invalid username|not found|forbidden|unauthorized)\b", text(
        "a server's answer in words", ANSWER_HINT
    )),
    (rb"(#!.*python|(import|from) [\w.]+( import |\s|$)|class \w+\s*[(:]|def \w+\()", text(
        "Python source code", "give the weights, and the code with --factory FILE.py:callable"
    )),
    (rb"(#[^\n]*\n\s*)*(nc|backbone|parameters|depth_multiple|anchors)\s*:", text(
        "the description of a network in YAML", "give the weights (.pt) that belong to it"
    )),
)  # fmt: skip

# (offset, magic, what it is)
MAGICS: tuple[tuple[int, bytes, Foreign], ...] = (
    (0, b"version https://git-lfs.github.com/spec/", LFS),
    (0, b"\x89HDF\r\n\x1a\n", KERAS),
    (4, b"TFL3", TFLITE),
    (0, b"\x93NUMPY", NUMPY),
    (0, b"\x1f\x8b", packed("gzip")),
    (0, b"\xfd7zXZ\x00", packed("xz")),
    (0, b"\x28\xb5\x2f\xfd", packed("zstd")),
    (0, b"BZh", packed("bzip2")),
    (0, b"7z\xbc\xaf\x27\x1c", packed("7-Zip")),
    (0, b"Rar!\x1a\x07", packed("RAR")),
    (0, b"\x04\x22\x4d\x18", packed("LZ4")),
    (0, b"GGUF", other("a GGUF model (llama.cpp)", "give the PyTorch or safetensors model that it was made from")),
    *((0, magic, GGML) for magic in (b"lmgg", b"tjgg", b"fmgg")),
    (4, b"ET12", other("an ExecuTorch program (.pte)", "give the PyTorch model that it was made from")),
    (4, b"ORTM", other("a model in ONNX Runtime's own format (.ort)", "give the .onnx file that it was made from")),
    (0, b"ftrt", other("a TensorRT engine, compiled already", "give the ONNX or PyTorch model that it was made from")),
    (0, b"ptrt", other("a TensorRT engine, compiled already", "give the ONNX or PyTorch model that it was made from")),
    (0, b"IMOD", other("an Ascend offline model (.om), compiled already", "give the model that it was made from")),
    (0, b"7767517\n", other("an ncnn network description", "give the PyTorch or ONNX model that it was made from")),
    (0, b"%PDF-", other("a PDF document", "give the model file")),
    (0, b"\x89PNG", other("a PNG picture", "give the model file; pictures go to --samples as arrays")),
    (0, b"\xff\xd8\xff", other("a JPEG picture", "give the model file; pictures go to --samples as arrays")),
    (0, b"\x7fELF", other("a program or shared library", "give the model file")),
)


def by_magic(head: bytes) -> Foreign | None:
    """What the first bytes say, by magic number."""
    return next((kind for offset, magic, kind in MAGICS if head.startswith(magic, offset)), None)


def by_text(head: bytes) -> Foreign | None:
    """What a text is: HTML, an OpenVINO or Caffe description, JSON of some framework, or just text."""
    sample = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if re.match(rb"<(!doctype\s+html|html|head|body)\b", sample) or (sample.startswith(b"<") and b"<html" in sample):
        return HTML
    if sample.startswith((b"<?xml", b"<net")) and b"<net" in sample:
        return other("an OpenVINO model description", "give the ONNX or PyTorch model that it was made from")
    if re.search(rb"(?m)^\s*layers?\s*\{", head) and re.search(rb"(?m)^\s*(name|input|layer)", head):
        return CAFFE_TEXT
    if re.match(rb'\{\s*"base_code"', sample):
        return msgspec.structs.replace(PADDLE, what="a PaddlePaddle program (PIR, .json)")
    if re.match(rb'\{\s*"(format|modeltopology)"', sample) and b"modeltopology" in sample:
        return tensorflow("a TensorFlow.js model", "tfjs")
    if as_text(head) is None:
        return None
    return next((kind for pattern, kind in TEXTS if re.match(pattern, sample[:4096])), None)


def as_text(head: bytes) -> str | None:
    """The first characters where a file is plain text, else None."""
    sample = head[:512]
    if any(byte < 9 or 13 < byte < 32 for byte in sample):
        return None
    try:
        decoded = sample[: len(sample) - 3].decode() if len(sample) == 512 else sample.decode()
    except UnicodeDecodeError:
        return None
    return " ".join(decoded.split())[:60]


def by_protobuf(data: bytes, size: int) -> Foreign | None:
    """What a protobuf message of another framework is, from the fields at its start (``data``: up to 64 KiB)."""
    top = top_fields(data, size)
    return next((kind for test, kind in PROTOBUFS if top and test(data, top)), None)


def top_fields(data: bytes, size: int, limit: int = 64) -> list[Field]:
    """The first fields of a message whose start is ``data``; a payload may end behind it, within ``size``."""
    found: list[Field] = []
    try:
        for field in fields(data, 0, size):
            found.append(field)
            if field.end >= len(data) or len(found) >= limit:
                break
    except (WireError, IndexError):
        return found
    return found


def inner_fields(data: bytes, field: Field) -> list[Field]:
    """The first fields inside a sub-message, as far as ``data`` reaches."""
    found: list[Field] = []
    try:
        for item in fields(data, field.start, field.end):
            found.append(item)
            if item.end >= len(data) or len(found) >= 64:
                break
    except (WireError, IndexError):
        return found
    return found


def short_text(data: bytes, field: Field) -> str:
    """A field's text where it is short, printable and in reach; else an empty one."""
    raw = data[field.start : field.end]
    if field.kind != LEN or field.end > len(data) or len(raw) > 512:
        return ""
    try:
        decoded = raw.decode()
    except UnicodeDecodeError:
        return ""
    return decoded if decoded.isprintable() else ""


def is_saved_model(data: bytes, top: list[Field]) -> bool:
    """``SavedModel`` (saved_model.proto): saved_model_schema_version = 1, meta_graphs = 2 (meta_info_def = 1)."""
    if [field.number for field in top[:2]] != [1, 2] or top[0].kind != VARINT or top[1].kind != LEN:
        return False
    inner = inner_fields(data, top[1])
    return bool(inner) and inner[0].number in (1, 2) and inner[0].kind == LEN and not short_text(data, top[1])


def is_graph_def(data: bytes, top: list[Field]) -> bool:
    """``GraphDef`` (graph.proto): node = 1, a NodeDef with name = 1 and op = 2, both texts."""
    if top[0].number != 1 or top[0].kind != LEN:
        return False
    inner = inner_fields(data, top[0])
    return (
        [item.number for item in inner[:2]] == [1, 2]
        and bool(short_text(data, inner[0]))
        and bool(re.fullmatch(r"[A-Z]\w*", short_text(data, inner[1])))
    )


def is_paddle(data: bytes, top: list[Field]) -> bool:
    """``ProgramDesc`` (framework.proto): blocks = 1, a BlockDesc with idx = 1 and parent_idx = 2, both numbers."""
    if top[0].number != 1 or top[0].kind != LEN:
        return False
    return [(item.number, item.kind) for item in inner_fields(data, top[0])[:2]] == [(1, VARINT), (2, VARINT)]


def is_mindspore_weights(data: bytes, top: list[Field]) -> bool:
    """``Checkpoint`` (checkpoint.proto): value = 1 with tag = 1 (text) and tensor = 2 with tensor_type = 2 (text)."""
    if top[0].number != 1 or top[0].kind != LEN:
        return False
    inner = inner_fields(data, top[0])
    if [item.number for item in inner[:2]] != [1, 2] or not short_text(data, inner[0]):
        return False
    types = [short_text(data, item) for item in inner_fields(data, inner[1]) if item.number == 2]
    return any(re.fullmatch(r"(U?Int|B?Float|BFloat|Bool|String)\d*", name) for name in types)


def is_mindir(data: bytes, top: list[Field]) -> bool:
    """``ModelProto`` (mind_ir.proto): ir_version = 1 and producer_name = 2 are texts; the producer says MindSpore."""
    return (
        [(item.number, item.kind) for item in top[:2]] == [(1, LEN), (2, LEN)]
        and bool(re.fullmatch(r"[\d.]+", short_text(data, top[0])))
        and "mindspore" in short_text(data, top[1]).lower()
    )


def is_caffe(data: bytes, top: list[Field]) -> bool:
    """``NetParameter`` (caffe.proto): name = 1, then layer = 100 (or the older layers = 2 with name = 4, type = 5)."""
    if top[0].number == 1 and top[0].kind == LEN and short_text(data, top[0]) and len(top) > 1:
        if any(field.number == 100 and field.kind == LEN for field in top[1:]):
            return True
        layers = [field for field in top[1:] if field.number == 2 and field.kind == LEN]
        numbers = {item.number for item in inner_fields(data, layers[0])} if layers else set()
        return {4, 5} <= numbers
    return False


def is_coreml(data: bytes, top: list[Field]) -> bool:
    """``Model`` (Model.proto): specificationVersion = 1 (a number), description = 2, then a model type from 200 on."""
    kinds = [(item.number, item.kind) for item in top[:2]]
    return kinds == [(1, VARINT), (2, LEN)] and any(item.number >= 200 for item in top[2:])


PROTOBUFS: tuple[tuple[Callable[[bytes, list[Field]], bool], Foreign], ...] = (
    (is_coreml, CORE_ML),
    (is_saved_model, SAVED_MODEL),
    (is_mindir, MINDIR),
    (is_mindspore_weights, MINDSPORE_WEIGHTS),
    (is_paddle, PADDLE),
    (is_graph_def, GRAPH_DEF),
    (is_caffe, CAFFE),
)


def is_paddle_weights(head: bytes, size: int) -> bool:
    """A saved LoDTensor: version 0, no LoD, tensor version 0, then a small TensorDesc with its data type first."""
    if size < 24 or head[:16] != bytes(16):
        return False
    length = int.from_bytes(head[16:20], "little")
    return 2 <= length <= 128 and head[20:21] == b"\x08"
