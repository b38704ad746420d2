"""Expected failures of the operator registry.

    RegistryDataError          any expected failure: a code, one line, a hint and an exit code
    ├── UnknownTarget          exit 2   no target of that name                                CNV-2501
    ├── UnknownVersion         exit 2   a toolchain version that can't be read                CNV-2502
    ├── UnknownVendor          exit 2   no vendor of that name                                CNV-2503
    ├── MalformedData          exit 2   a data file or overlay that can't be trusted          CNV-2504
    ├── UnknownOperator        exit 2   no operator of that name                              CNV-2505
    └── UnreadableSource       exit 2   nothing to learn from a given file                    CNV-2506

The class has the shape that every command-line boundary of this project shows (``code``, ``message``, ``hint``,
``exit_code``, ``as_json``). This package imports nothing of the others, so it is written down here once more.
"""

from __future__ import annotations

import re

UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""What a message never holds, whatever a file is called: control characters, line breaks, halves of surrogates."""


class RegistryDataError(Exception):
    """An expected failure. ``str()`` is one line that says what is wrong; ``hint`` says what to do next."""

    exit_code = 2

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        self.code = code
        self.message = UNSEEN.sub("?", message)
        self.hint = UNSEEN.sub("?", hint)
        super().__init__(self.message)

    def as_json(self) -> dict[str, object]:
        """The error as commands print it under ``--json``."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "exit_code": self.exit_code}


class UnknownTarget(RegistryDataError):
    """No target has that name (exit 2)."""


class UnknownVersion(RegistryDataError):
    """The toolchain version can't be read as one of that vendor's (exit 2)."""


class UnknownVendor(RegistryDataError):
    """No vendor has that name (exit 2)."""


class MalformedData(RegistryDataError):
    """A data file or overlay breaks the rules of its format (exit 2)."""


class UnknownOperator(RegistryDataError):
    """No vendor's table and no ONNX version names that operator (exit 2)."""


class UnreadableSource(RegistryDataError):
    """A file given to ``learn`` holds nothing that can be learned (exit 2)."""
