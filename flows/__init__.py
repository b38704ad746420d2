"""Prefect flows around the conversion: they schedule, and nothing else."""

import os

# Before any module imports Prefect: a flow must never start a server of its own behind the user's back.
os.environ.setdefault("PREFECT_SERVER_ALLOW_EPHEMERAL_MODE", "false")
