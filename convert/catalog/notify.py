"""Telling somebody that a pair got worse: one HTTP POST of JSON for each regression."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from convert.catalog.values import Outcome

LOG = logging.getLogger("convert.catalog")
SECONDS = 10.0


def regressions(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """The outcomes that are worse than last time."""
    return [outcome for outcome in outcomes if outcome.regression]


def payload(outcome: Outcome) -> dict[str, Any]:
    """What the receiver gets, schema 1."""
    return {
        "schema": 1,
        "event": "regression",
        "model": outcome.name,
        "target": outcome.target,
        "owner": outcome.owner,
        "regression": outcome.regression,
        "status": outcome.status,
        "verdict": outcome.verdict,
        "reference": outcome.ref,
        "error": outcome.error,
    }


def notify(address: str, outcomes: Sequence[Outcome]) -> list[str]:
    """POST each regression; gives in words which could not be told. A receiver that is down fails no catalogue."""
    found = regressions(outcomes)
    if not address or not found:
        return []
    import httpx

    lost = []
    with httpx.Client(timeout=SECONDS) as client:
        for outcome in found:
            try:
                client.post(address, json=payload(outcome)).raise_for_status()
            except httpx.HTTPError as error:
                LOG.warning("%s could not be told of a regression: %s", address, error)
                lost.append(f"{address} was not told that {outcome.name}@{outcome.target} got worse: {error}")
    return lost
