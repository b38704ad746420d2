"""Every expected failure of a conversion, by exit code.

    ModelConvertError (artifacts.errors)
    ├── UsageError         exit 2    the request or a setting is wrong               CNV-2xxx
    ├── LoadError          exit 3    the model file can't be loaded                  CNV-3xxx
    ├── ExportError        exit 4    export or simplification failed                 CNV-4xxx
    ├── UnsupportedOps     exit 5    operators that the target does not take         CNV-5xxx
    ├── ToolchainMissing   exit 6    the toolchain is not on this machine            CNV-6xxx
    ├── CompileFailed      exit 7    the vendor compiler failed                      CNV-7xxx
    ├── GateFailed         exit 8    the validation gate failed                      CNV-8xxx
    ├── RegistryError      exit 9    the registry can't be read or written           CNV-9xxx
    └── ResourceLimit      exit 10   time, memory or disk ran out                    CNV-1xxx

``convert explain CODE`` shows the page of a code; the pages lie in ``convert/explain/``.
"""

from __future__ import annotations

from artifacts.errors import ModelConvertError, RegistryError, ResourceLimit, UsageError, disk_full
from op_registry.errors import RegistryDataError

__all__ = [
    "EXPECTED",
    "CompileFailed",
    "ConvertError",
    "ExportError",
    "GateFailed",
    "LoadError",
    "RegistryError",
    "ResourceLimit",
    "ToolchainMissing",
    "UnsupportedOps",
    "UsageError",
    "disk_full",
]

ConvertError = ModelConvertError
EXPECTED = (ModelConvertError, RegistryDataError)
"""Every expected failure: ``op_registry`` stands below ``artifacts`` and has a base of its own, of the same shape."""


class LoadError(ConvertError):
    """The model file can't be loaded (exit 3)."""

    exit_code = 3


class ExportError(ConvertError):
    """Export or simplification failed (exit 4)."""

    exit_code = 4


class UnsupportedOps(ConvertError):
    """The target does not take some operators of the graph (exit 5)."""

    exit_code = 5


class ToolchainMissing(ConvertError):
    """The vendor's toolchain is not on this machine (exit 6)."""

    exit_code = 6


class CompileFailed(ConvertError):
    """The vendor's compiler failed (exit 7)."""

    exit_code = 7


class GateFailed(ConvertError):
    """The validation gate failed (exit 8)."""

    exit_code = 8
