"""How to talk to an OCI registry: what a command line says of it. Imports no HTTP client."""

from __future__ import annotations

from pathlib import Path

import msgspec


class HttpOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to talk to a registry. ``deadline``: seconds for all requests together; 0 for none."""

    insecure_http: bool = False
    """Plain HTTP to other machines as well; to this machine it is always allowed."""
    ca: Path | None = None
    deadline: float = 0.0
