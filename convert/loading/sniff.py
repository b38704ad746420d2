"""Finding out what a model file is, from its bytes and never from its suffix.

``identify`` imports no torch or onnx and executes nothing: zip directories, pickles and protobuf messages are read
with bounds. What is no model that can be loaded ends as a :class:`LoadError` that says what it is instead.
"""

from __future__ import annotations

import json
import math
import os
import stat
import struct
from functools import lru_cache
from pathlib import Path

from artifacts.digest import FileEntry, sha256_file
from convert.errors import LoadError
from convert.loading import foreign, pickles
from convert.loading.onnx_files import MODEL_KINDS, external_files, outline_onnx
from convert.loading.wire import VARINT
from convert.loading.zips import Archive, cut_short, open_archive
from convert.values import ModelFile, ModelFormat

HEAD = 64 << 10
MAX_SAFETENSORS_HEADER = 100_000_000
"""The limit of the safetensors format itself."""
ELEMENT_BITS = {
    "F64": 64, "F32": 32, "F16": 16, "BF16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "I64": 64, "I32": 32,
    "I16": 16, "I8": 8, "U64": 64, "U32": 32, "U16": 16, "U8": 8, "BOOL": 8, "C64": 64, "C128": 128,
}  # fmt: skip
MODEL_SUFFIXES = (
    ".pt", ".pth", ".pt2", ".ts", ".jit", ".ckpt", ".bin", ".safetensors", ".onnx", ".pb", ".h5", ".keras", ".tflite",
    ".pdmodel", ".mindir", ".caffemodel", ".tar", ".pkl",
)  # fmt: skip
"""Used to list what lies in a folder, never to judge a file."""


def identify(path: Path) -> ModelFile:
    """What a model file is, with its digest; links are followed first.

    Raises :class:`LoadError` CNV-3001 to CNV-3021: one code for each thing that the file may be instead of a model
    (missing, unreadable, a folder, empty, cut short, a web page, a git-lfs pointer, a model of another framework, …),
    and for damaged and unsafe files.
    """
    real, size = find_file(path)
    mtime = real.stat().st_mtime_ns
    try:
        return _identify(real, size, mtime)
    except LoadError as error:
        raise _said_of_link(error, path, real, size) from error


def _said_of_link(error: LoadError, link: Path, real: Path, size: int) -> LoadError:
    """The same error, with what to do where data files lie beside a link and not beside the file that it leads to."""
    if error.code != "CNV-3018" or link.parent.resolve() == real.parent:
        return error
    if not all((link.parent / tensor.location).is_file() for tensor in outline_onnx(real, size).external):
        return error
    hint = (
        f"{link} is a link, and the data files lie beside the link, as in a download cache: copy all of them into one "
        f"folder with the links followed (cp -L {link.parent}/* FOLDER/), and convert that copy"
    )
    return LoadError(error.code, error.message, hint=hint)


@lru_cache(maxsize=8)
def _identify(path: Path, size: int, mtime: int) -> ModelFile:
    """One judgement for each state of a file; a process asks several times."""
    try:
        model_format, container = judge(path, size)
        external: tuple[FileEntry, ...] = ()
        if model_format == "onnx":
            external = external_files(path, outline_onnx(path, size).external)
        digest = sha256_file(path)
    except OSError as error:
        raise unreadable(path, error) from error
    return ModelFile(
        path=str(path), format=model_format, sha256=digest, bytes=size, container=container, external=external
    )


def find_file(path: Path) -> tuple[Path, int]:
    """The real file and its size. Raises :class:`LoadError` CNV-3001 to CNV-3004."""
    try:
        real = path.resolve(strict=True)
        info = real.stat()
    except FileNotFoundError as error:
        raise missing(path) from error
    except (OSError, RuntimeError, ValueError) as error:
        raise unreadable(path, error) from error
    if stat.S_ISDIR(info.st_mode):
        raise is_folder(path, real)
    if not stat.S_ISREG(info.st_mode):
        raise unreadable(path, OSError("it is no regular file"))
    if info.st_size == 0:
        raise LoadError(
            "CNV-3004",
            f"{path.name} is an empty file (0 bytes)",
            hint="download or copy the file again; the disk may have been full when it was written",
        )
    return real, info.st_size


def missing(path: Path) -> LoadError:
    """The error for a file that does not exist; names files beside it that look alike."""
    where = "a link to nothing" if path.is_symlink() else "not there"
    near: list[str] = []
    if path.parent.is_dir():
        near = [item.name for item in model_files(path.parent)][:6]
    hint = f"files in {path.parent}: {', '.join(near)}" if near else "check the path"
    return LoadError("CNV-3001", f"{path} is {where}", hint=hint)


def unreadable(path: Path, error: Exception) -> LoadError:
    """The error for a file that can't be opened or read."""
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    denied = isinstance(error, PermissionError)
    hint = "check the permissions of the file and its folder" if denied else "give the path of a file on a disk"
    return LoadError("CNV-3002", f"{path} can't be read: {said}", hint=hint)


def is_folder(path: Path, real: Path) -> LoadError:
    """The error for a folder, with what lies in it."""
    if (real / "saved_model.pb").is_file():
        return LoadError(
            "CNV-3010",
            f"{path} is a folder: a TensorFlow SavedModel",
            hint=f"convert it to ONNX first: python -m tf2onnx.convert --saved-model {path.name} --output model.onnx",
        )
    if (real / "Data" / "com.apple.CoreML").is_dir():
        return foreign.CORE_ML.error(path)
    found = model_files(real)
    shown = ", ".join(str(item.relative_to(real)) for item in found[:8])
    if not found:
        hint = "give the model file itself; an unpacked .pt must be zipped again (without compression)"
    else:
        hint = f"give one of the model files inside: {shown}"
        hint += f" and {len(found) - 8} more" if len(found) > 8 else ""
    return LoadError("CNV-3003", f"{path} is a folder, not a model file", hint=hint)


def model_files(folder: Path, limit: int = 2000) -> list[Path]:
    """Files of a folder and its subfolders that are called like models (``limit`` entries are looked at)."""
    found: list[Path] = []
    seen = 0
    for parent, folders, names in os.walk(folder):
        folders.sort()
        if len(Path(parent).relative_to(folder).parts) >= 2:
            folders.clear()
        for name in sorted(names):
            seen += 1
            if name.lower().endswith(MODEL_SUFFIXES):
                found.append(Path(parent) / name)
        if seen > limit:
            break
    return found


def judge(path: Path, size: int) -> tuple[ModelFormat, str]:
    """Format and container of a file that has at least one byte."""
    with path.open("rb") as stream:
        head = stream.read(HEAD)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return judge_zip(open_archive(path, size), size), "zip"
    known = foreign.by_magic(head) or foreign.by_text(head)
    if known is not None:
        raise known.error(path)
    if head[257:262] == b"ustar":
        return judge_tar(path), "tar"
    if looks_like_safetensors(head):
        check_safetensors(path, size)
        return "safetensors", "safetensors"
    if head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return judge_pickle(path, size), "pickle"
    found = foreign.by_protobuf(head, size)
    if found is not None:
        raise found.error(path)
    if looks_like_onnx(head, size):
        return "onnx", "protobuf"
    raise unknown(path, head, size)


def unknown(path: Path, head: bytes, size: int) -> LoadError:
    """The error for bytes that say nothing."""
    if foreign.is_paddle_weights(head, size):
        return foreign.PADDLE_WEIGHTS.error(path)
    shown = foreign.as_text(head)
    what = f"text that starts with {shown!r}" if shown is not None else f"bytes that start with {head[:8].hex(' ')}"
    return LoadError(
        "CNV-3015",
        f"{path.name} is no model file that can be recognised: {size:,} bytes, {what}",
        hint="give a TorchScript, torch.export (.pt2), torch.save, safetensors or ONNX file",
    )


# ---------------------------------------------------------------------------------------------------------------- zips


def judge_zip(archive: Archive, size: int) -> ModelFormat:
    """Which of torch's zip formats an archive is."""
    if archive.has("archive_format") or archive.has("serialized_exported_program.json") or archive.below("models/"):
        return judge_program(archive)
    torchscript = archive.has("constants.pkl") or archive.below("code/")
    # The version stands in one of two places: scripts of torch's own classes have it in `.data/`.
    versioned = archive.has("version") or archive.has(".data/version")
    if archive.has("data.pkl") and versioned and torchscript:
        return "torchscript"
    if archive.has("data.pkl") and archive.root:
        return from_scan(archive.path, pickles.scan_archive(archive))
    if torchscript and archive.root:
        raise cut_short(archive.path, size)
    raise not_torch(archive)


def judge_program(archive: Archive) -> ModelFormat:
    """An exported program, in the layout of PyTorch 2.1 to 2.7 (flat) or of later versions."""
    if archive.has("serialized_exported_program.json") or archive.has("models/model.json"):
        return "exported_program"
    if archive.below("data/aotinductor/"):
        raise LoadError(
            "CNV-3013",
            f"{archive.path.name} is an AOTInductor package, compiled already for one processor",
            hint="give the exported program that it was made from: torch.export.save(program, 'model.pt2')",
        )
    inside = ", ".join(archive.below("models/")[:6]) or "no program"
    raise LoadError(
        "CNV-3008",
        f"{archive.path.name} is a torch.export archive without a program called 'model'; inside: {inside}",
        hint="save the program alone: torch.export.save(program, 'model.pt2')",
    )


def not_torch(archive: Archive) -> LoadError:
    """The error for a zip archive that torch did not write."""
    names = list(archive.members)
    shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    if names and all(name.endswith(".npy") for name in names):
        return LoadError(
            "CNV-3009",
            f"{archive.path.name} is a zip of numpy arrays (.npz) without data.pkl, not a model; inside: {shown}",
            hint="arrays go to --samples; give the model file here",
        )
    if {"config.json", "metadata.json"} <= set(names) and any(name.endswith(".h5") for name in names):
        return foreign.KERAS_ZIP.error(archive.path)
    return LoadError(
        "CNV-3008",
        f"{archive.path.name} is a zip archive, but not from PyTorch (no data.pkl); inside: {shown or 'nothing'}",
        hint="if the model lies inside, unpack it and give that file; a .pt zipped by hand needs one root folder",
    )


# ------------------------------------------------------------------------------------------------------- pickles, tars


def judge_tar(path: Path) -> ModelFormat:
    """A tar of the first PyTorch versions, or the error for another tar."""
    try:
        scan = pickles.scan_tar(path)
        names = pickles.tar_names(path, 9)
    except ValueError as error:
        raise pickles.damaged(path, error) from error
    if scan is not None:
        return from_scan(path, scan)
    shown = ", ".join(names[:8])
    raise LoadError("CNV-3014", f"{path.name} is a tar archive; inside: {shown}", hint=foreign.UNPACK_HINT)


def judge_pickle(path: Path, size: int) -> ModelFormat:
    """A file that ``torch.save`` wrote before PyTorch 1.6, or the error for another pickle."""
    try:
        scan = pickles.scan_legacy(path, size)
    except (ValueError, StopIteration) as error:
        raise pickles.damaged(path, error) from error
    if scan.magic:
        return from_scan(path, scan)
    raise LoadError(
        "CNV-3023",
        f"{path.name} is a Python pickle that torch.save did not write: {scan.what or scan.kind}, "
        f"which would import {shown_globals(scan.globals)}",
        hint="save the model with torch.save, torch.export.save or torch.jit.save",
    )


def shown_globals(names: tuple[str, ...], limit: int = 8) -> str:
    """Names of globals for a message."""
    shown = ", ".join(name[:120] for name in names[:limit]) or "nothing"
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def from_scan(path: Path, scan: pickles.PickleScan) -> ModelFormat:
    """The format of what a pickle holds; CNV-3024 where it is no model and no weights."""
    if scan.kind == "module":
        return "module"
    if scan.kind in ("state_dict", "checkpoint"):
        return scan.kind
    # An object made by a call may still be a module (a class with its own __reduce__): opening it decides.
    if scan.kind == "other" and scan.what.startswith("object made by"):
        return "module"
    raise LoadError(
        "CNV-3024",
        f"{path.name} holds no model: it is a saved {scan.what}",
        hint="save the model itself: torch.save(model.state_dict(), 'model.pt'), torch.jit.save or torch.export.save",
    )


# --------------------------------------------------------------------------------------------------- safetensors, ONNX


def looks_like_safetensors(head: bytes) -> bool:
    """The length of a JSON header, then the header."""
    return len(head) > 9 and head[8:9] == b"{" and head[4:8] == bytes(4) and head[9:10] in b'"} \n\t\r'


def check_safetensors(path: Path, size: int) -> None:
    """Check the header's size, its JSON, and that every tensor lies in the file. Raises CNV-3022."""
    with path.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        if length > MAX_SAFETENSORS_HEADER or length > size - 8:
            raise damaged_safetensors(
                path, size, f"its header of {length:,} bytes is larger than the file or the limit"
            )
        raw = stream.read(length)
    try:
        header = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise damaged_safetensors(path, size, f"its header is no JSON ({str(error)[:80]})") from error
    if not isinstance(header, dict):
        raise damaged_safetensors(path, size, "its header is no JSON object")
    room = size - 8 - length
    for name, entry in header.items():
        if name != "__metadata__" and not fits(entry, room):
            raise damaged_safetensors(path, size, f"tensor {name[:120]!r} does not lie within the file")


def fits(entry: object, room: int) -> bool:
    """Whether a tensor's entry is well-formed and lies within ``room`` bytes."""
    if not isinstance(entry, dict):
        return False
    shape, offsets, dtype = entry.get("shape"), entry.get("data_offsets"), entry.get("dtype")
    if not (isinstance(shape, list) and isinstance(offsets, list) and len(offsets) == 2 and isinstance(dtype, str)):
        return False
    if not all(type(number) is int and 0 <= number < 1 << 62 for number in (*shape, *offsets)):
        return False
    start, end = offsets
    bits = ELEMENT_BITS.get(dtype)
    right_size = bits is None or (end - start) * 8 == math.prod(shape) * bits
    return start <= end <= room and len(shape) <= 64 and right_size


def damaged_safetensors(path: Path, size: int, why: str) -> LoadError:
    """The error for a safetensors file that can't be read."""
    return LoadError(
        "CNV-3022",
        f"{path.name} is a safetensors file, cut short or damaged: {why} ({size:,} bytes)",
        hint="download or copy the file again and compare its size and sha256 with the source",
    )


def looks_like_onnx(head: bytes, size: int) -> bool:
    """Whether the first fields are those of an ONNX ModelProto."""
    top = foreign.top_fields(head, size)
    numbers = {field.number for field in top}
    if any(MODEL_KINDS.get(field.number) != field.kind for field in top):
        return False
    if top and top[0].number == 1 and top[0].kind == VARINT and 0 < top[0].value < 1000:
        return True
    return bool(numbers & {7, 8}) and len(head) > 2
