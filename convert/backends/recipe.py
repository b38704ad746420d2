"""The settings of the ``onnxruntime`` backend, as values and as the argument list of its plan."""

from __future__ import annotations

import msgspec

from convert.backends.base import MODEL_IN, OUT
from convert.values import Precision

MODULE = "convert.backends.onnxruntime"


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """What the plan's argument list says, as values."""

    precision: Precision
    level: str = "basic"
    keep_fp32: tuple[str, ...] = ()
    ir_version: int = 0
    """The highest IR version that the runtime reads; 0: whatever the graph has."""

    def as_argv(self) -> tuple[str, ...]:
        """The argument list of a plan."""
        kept = tuple(f"--keep-fp32={name}" for name in self.keep_fp32)
        return (
            MODULE,
            f"--precision={self.precision}",
            f"--level={self.level}",
            *((f"--ir-version={self.ir_version}",) if self.ir_version else ()),
            *kept,
            MODEL_IN,
            MODEL_IN.replace("model/", f"{OUT}/"),
        )

    @staticmethod
    def from_argv(argv: tuple[str, ...]) -> Recipe:
        """The recipe of a plan's argument list."""
        said = [text.removeprefix("--").partition("=") for text in argv[1:-2]]
        single = {key.replace("-", "_"): value for key, _, value in said}
        kept = tuple(value for key, _, value in said if key == "keep-fp32")
        return msgspec.convert({**single, "keep_fp32": kept}, Recipe, strict=False)
