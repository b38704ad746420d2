"""What an artifact is judged by where this process does not run it: outputs measured elsewhere, or the forecast."""

from __future__ import annotations

import msgspec

from artifacts.digest import Digest, FileEntry
from convert.values import Forecast, Value


class MeasuredOutputs(Value, frozen=True, kw_only=True):
    """Outputs that a device gave for the samples of a graph, brought here as files.

    ``parent`` is the digest of the graph. ``files``: ``measured/000.npz``, … one for each sample, with the outputs as
    ``0``, ``1``, … in order, or by name. ``device`` is what they ran on, in the words of whoever brought them.
    """

    parent: Digest
    device: str = ""
    files: tuple[FileEntry, ...] = ()


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What ``validate`` may use. Measured outputs go first, then a run of its own, then the forecast."""

    measured: MeasuredOutputs | None = None
    forecast: Forecast | None = None
