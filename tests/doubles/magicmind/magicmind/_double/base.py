# ruff: noqa: N802
"""Settings, Status, types, and lines in the log as MagicMind writes them."""

import enum
import os
import sys


def setting(name, default=""):
    return os.environ.get(f"MAGICMIND_DOUBLE_{name}", default)


def fault():
    return setting("FAULT")


def version():
    return setting("VERSION", "1.7.0")


def level():
    return tuple(int(part) for part in version().split(".")[:2])


def device_count():
    if os.environ.get("MLU_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return 0
    return int(setting("DEVICES", "1"))


def log_error(place, text):
    sys.stdout.flush()
    sys.stderr.write(f"2026-12-01 10:00:00.000001: ERROR:  {place}] {text}\n")
    sys.stderr.flush()


class Code(enum.Enum):
    OK = "OK"
    INVALID_ARGUMENT = "Invalid argument"
    OUT_OF_RANGE = "Out of range"
    UNAVAILABLE = "Unavailable"
    INTERNAL = "Internal"


class Status:
    """``Status()`` is ok; ``Status(code, text)`` is not. Never raised."""

    def __init__(self, code=Code.OK, text=""):
        self._code, self._text = code, text

    def ok(self):
        return self._code is Code.OK

    def code(self):
        return self._code

    def error_message(self):
        return self._text

    def __str__(self):
        return "OK" if self.ok() else f"{self._code.value}: {self._text}"


OK = Status()


def invalid(text):
    return Status(Code.INVALID_ARGUMENT, text)


def internal(text):
    return Status(Code.INTERNAL, text)


class DataType(enum.Enum):
    FLOAT32 = "float32"
    FLOAT16 = "float16"
    INT64 = "int64"
    INT32 = "int32"
    INT16 = "int16"
    INT8 = "int8"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    DOUBLE = "float64"
    BOOL = "bool"
    QINT8 = "qint8"
    QINT16 = "qint16"


ONNX_TYPES = {1: "FLOAT32", 2: "UINT8", 3: "INT8", 4: "UINT16", 5: "INT16", 6: "INT32", 7: "INT64", 9: "BOOL",
              10: "FLOAT16", 11: "DOUBLE"}  # fmt: skip
FLOATS = (DataType.FLOAT32, DataType.FLOAT16)
WIDE = {DataType.INT64: DataType.INT32, DataType.DOUBLE: DataType.FLOAT32}


class Dims:
    def __init__(self, sizes):
        self._sizes = [int(size) for size in sizes]

    def GetDims(self):
        return list(self._sizes)

    def GetDimValue(self, place):
        return self._sizes[place]

    def GetElementCount(self):
        count = 1
        for size in self._sizes:
            if size < 0:
                return -1
            count *= size
        return count
