"""Prometheus metrics: what the registry holds, and what the server was asked."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator

from artifacts.listing import ListedModel

PREFIX = "model_convert_"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Requests:
    """Counts of answered requests by route and status, their time, and the bytes of downloads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._answered: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[str] = Counter()

    def count(self, route: str, status: int, seconds: float) -> None:
        """Count one answer."""
        with self._lock:
            self._answered[route, status] += 1
            self._seconds[route] += seconds  # type: ignore[assignment]

    def lines(self) -> Iterator[str]:
        """The metrics in Prometheus' text form."""
        with self._lock:
            answered, seconds = dict(self._answered), dict(self._seconds)
        yield from _metric(
            "http_requests_total", "counter", "Requests answered.",
            (({"route": route, "status": str(status)}, count) for (route, status), count in sorted(answered.items())),
        )  # fmt: skip
        yield from _metric(
            "http_request_seconds_total", "counter", "Time spent on requests.",
            (({"route": route}, round(spent, 6)) for route, spent in sorted(seconds.items())),
        )  # fmt: skip


def metrics_text(models: tuple[ListedModel, ...], requests: Requests) -> str:
    """The whole answer of ``/metrics``."""
    sound = [model for model in models if not model.problem]
    lines = [
        *_metric("models", "gauge", "Models in the registry.", [({}, len(models))]),
        *_metric("damaged_models", "gauge", "Models that can't be read.", [({}, len(models) - len(sound))]),
        *_metric(
            "versions", "gauge", "Versions of a model.",
            (({"model": model.name}, len(model.versions)) for model in sound),
        ),
        *_metric(
            "drafts", "gauge", "Versions in the making.",
            (({"model": model.name}, len(model.drafts)) for model in sound),
        ),
        *_metric(
            "channel_version", "gauge", "The version that a channel has; always 1.",
            (
                ({"model": model.name, "channel": channel, "version": version.version}, 1)
                for model in sound
                for version in model.versions
                for channel in version.channels
            ),
        ),
        *requests.lines(),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _metric(name: str, kind: str, text: str, rows: Iterable[tuple[dict[str, str], float]]) -> Iterator[str]:
    yield f"# HELP {PREFIX}{name} {text}"
    yield f"# TYPE {PREFIX}{name} {kind}"
    for labels, value in rows:
        told = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels.items())
        yield f"{PREFIX}{name}{{{told}}} {value}" if told else f"{PREFIX}{name} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
