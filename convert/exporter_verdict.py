"""How one of torch's exporters was judged."""

from __future__ import annotations

from typing import Literal

import msgspec


class ExporterVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One of torch's exporters, judged against torch: on the samples, and on inputs that bring out silent faults.

    ``wrong``: other numbers than torch on some of them; ``failed``: no graph that runs. ``concerns``: what the exporter
    is known to get silently wrong and the graph has; ``probes``: the inputs beside the samples that it was judged on.
    """

    exporter: str
    state: Literal["chosen", "right", "wrong", "failed", "not judged"]
    opset: int = 0
    reason: str = ""
    concerns: tuple[str, ...] = ()
    probes: tuple[str, ...] = ()
