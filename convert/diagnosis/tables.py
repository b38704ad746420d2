"""The tables that logs are read with: one reviewed CSV per vendor in ``data/``, and the kinds of cause.

A row says how a text of the vendor is recognized, what it means and what to do, both in our words. Its columns:

    codes     error codes that the row stands for, ``E10013`` or ``EZ0001-EZ0007``, separated by blanks
    rank      ``cause``; ``follow``: an error that mostly follows another; ``status``: a closing line; ``warning``
    kind      the kind of cause, one of :data:`KINDS`
    seek      plain texts, separated by ``|``, one of which stands in every log that the row is for (rows with
              codes are found by those, and by ``seek`` too where it is given)
    pattern   a regular expression for that line and the next; its groups are what a diagnosis tells
    cause, action, versions, source
    examples  lines that the row is for, separated by `` ¦ ``; every one is a test

Every repeat in a pattern is bounded, so that a hostile log costs no more than a long one.
"""

from __future__ import annotations

import csv
import functools
import re
from importlib import resources

import msgspec

VENDORS = ("atc", "magicmind", "migraphx", "tensorrt", "ixrt", "openvino", "sophgo", "qnn", "rknn")
TABLES = {"ixrt": ("ixrt", "tensorrt")}
"""Vendors that more than their own table is read for: IxRT's parser is of TensorRT's family."""
RANKS = ("cause", "follow", "status", "warning")


class Kind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of cause: the code of its page, a title, and the words that people search for it."""

    code: str
    title: str
    words: tuple[str, ...] = ()


KINDS = {
    "op": Kind(
        code="CNV-7261",
        title="the compiler has no operator of that type",
        words=("OP_NOT_SUPPORTED", "UNSUPPORTED_OP", "OP_UNSUPPORTED", "NO_PARSER", "UNKNOWN_OPERATOR", "NO_KERNEL"),
    ),
    "limit": Kind(
        code="CNV-7262",
        title="the compiler refuses an operator's attributes, dtype or sizes",
        words=("ATTRIBUTE_INVALID", "DTYPE_NOT_SUPPORTED", "OP_LIMIT", "INVALID_ATTR", "TYPE_NOT_SUPPORTED"),
    ),
    "shape": Kind(
        code="CNV-7263",
        title="a shape does not fit",
        words=("SHAPE_INVALID", "INVALID_SHAPE", "SHAPE_MISMATCH", "INFER_SHAPE_FAILED", "DYNAMIC_SHAPE"),
    ),
    "flag": Kind(
        code="CNV-7264",
        title="the compiler refuses one of its arguments",
        words=("INVALID_ARGUMENT", "UNKNOWN_FLAG", "UNKNOWN_OPTION", "PARAM_INVALID", "INVALID_PARAM"),
    ),
    "soc": Kind(
        code="CNV-7265",
        title="built for another chip",
        words=("SOC_MISMATCH", "WRONG_SOC", "SOC_VERSION_INVALID", "ARCH_MISMATCH", "WRONG_CHIP"),
    ),
    "env": Kind(
        code="CNV-7266",
        title="the toolchain's environment is not complete",
        words=("ENVIRONMENT", "MODULE_NOT_FOUND", "LIBRARY_NOT_FOUND", "OPP_NOT_FOUND", "IMPORT_ERROR"),
    ),
    "host": Kind(
        code="CNV-7267",
        title="the machine's memory ran out",
        words=("OUT_OF_MEMORY", "OOM", "HOST_MEMORY", "KILLED", "BAD_ALLOC"),
    ),
    "devmem": Kind(
        code="CNV-7268",
        title="the device's memory ran out",
        words=("DEVICE_OUT_OF_MEMORY", "DEVICE_MEMORY", "GPU_OOM", "NPU_OOM", "CUDA_OUT_OF_MEMORY"),
    ),
    "device": Kind(
        code="CNV-7269",
        title="the device or its driver can't be used",
        words=("DEVICE_ERROR", "NO_DEVICE", "DRIVER_ERROR", "DRIVER_MISMATCH", "DEVICE_LOST", "LICENSE", "LICENCE"),
    ),
    "model": Kind(
        code="CNV-7270",
        title="the compiler can't read the model",
        words=("MODEL_INVALID", "PARSE_FAILED", "MODEL_PARSE_ERROR", "INVALID_GRAPH", "NAME_NOT_FOUND"),
    ),
    "quant": Kind(
        code="CNV-7271",
        title="the precision does not go with the model",
        words=("ACCURACY_OVERFLOW", "PRECISION_OVERFLOW", "FP16_OVERFLOW", "CALIBRATION_FAILED", "QUANTIZATION", "NAN"),
    ),
    "kernel": Kind(
        code="CNV-7272",
        title="a kernel could not be compiled",
        words=("COMPILE_FAILED", "KERNEL_COMPILE_FAILED", "FUSION_FAILED", "NO_IMPLEMENTATION", "TILING_FAILED"),
    ),
    "input": Kind(
        code="CNV-7273",
        title="the inputs given do not fit the artifact",
        words=("INPUT_INVALID", "INPUT_SIZE_MISMATCH", "WRONG_INPUT", "OUT_OF_BOUNDS"),
    ),
    "file": Kind(
        code="CNV-7274",
        title="a file can't be read or written",
        words=("FILE_NOT_FOUND", "PERMISSION_DENIED", "WRITE_FAILED", "NO_SPACE"),
    ),
    "internal": Kind(
        code="CNV-7275",
        title="an error inside the vendor's tool",
        words=("INNER_ERROR", "INTERNAL_ERROR", "SEGFAULT", "ABORTED", "CRASH"),
    ),
    "differs": Kind(
        code="CNV-7276",
        title="the vendor's own comparison failed",
        words=("ACCURACY_FAILED", "ACCURACY_MISMATCH", "VERIFY_FAILED", "RESULT_MISMATCH"),
    ),
    "version": Kind(
        code="CNV-7277",
        title="artifact and toolkit are of different versions",
        words=("VERSION_MISMATCH", "ENGINE_VERSION", "VERSION_NOT_SUPPORTED", "INCOMPATIBLE"),
    ),
    "ok": Kind(code="CNV-7278", title="the log holds no error", words=("SUCCESS", "PASSED", "WARNING")),
}


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a table. ``number`` counts from 1 within its vendor."""

    vendor: str
    number: int
    codes: tuple[tuple[str, str], ...]
    rank: int
    kind: str
    seek: tuple[str, ...]
    pattern: str
    cause: str
    action: str
    versions: str
    source: str
    examples: tuple[str, ...]

    def has_code(self, code: str) -> bool:
        """Whether the row stands for an error code."""
        return any(low <= code <= high and len(code) == len(low) for low, high in self.codes)

    def search(self, text: str) -> re.Match[str] | None:
        """Where the row's pattern stands in a text."""
        return compiled(self.pattern).search(text)


@functools.cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern, compiled once, when a log first needs it."""
    return re.compile(pattern)


@functools.cache
def table(vendor: str) -> tuple[Row, ...]:
    """The rows of one vendor. Raises ValueError for a vendor without a table."""
    if vendor not in VENDORS:
        raise ValueError(f"no error table for {vendor!r}")
    text = (resources.files("convert.diagnosis") / "data" / f"{vendor}.csv").read_text(encoding="utf-8")
    return tuple(_row(vendor, number, row) for number, row in enumerate(csv.DictReader(text.splitlines()), 1))


def rows_for(vendor: str) -> tuple[Row, ...]:
    """The rows that a vendor's logs are read with, its own first."""
    return tuple(row for name in TABLES.get(vendor, (vendor,)) for row in table(name))


def _row(vendor: str, number: int, row: dict[str, str]) -> Row:
    ranges = [part.partition("-") for part in row["codes"].split()]
    return Row(
        vendor=vendor,
        number=number,
        codes=tuple((low, high or low) for low, _, high in ranges),
        rank=RANKS.index(row["rank"]),
        kind=row["kind"],
        seek=tuple(part for part in row["seek"].split("|") if part),
        pattern=row["pattern"],
        cause=row["cause"],
        action=row["action"],
        versions=row["versions"],
        source=row["source"],
        examples=tuple(part for part in row["examples"].split(" ¦ ") if part),
    )
