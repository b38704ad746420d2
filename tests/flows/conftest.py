"""One Prefect server for all tests of flows, whichever of pytest's processes they run in."""

from __future__ import annotations

from flow_server import prefect_template, prefect_url, server

__all__ = ["prefect_template", "prefect_url", "server"]
