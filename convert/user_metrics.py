"""``--metric module:callable``: a user's own metric, called with (reference, candidate) and giving a float.

Higher is better: over several samples the lowest value counts, and ``--gate NAME=VALUE`` asks for at least VALUE.
The name is the callable's. Loaded and called in the worker; :func:`metric_names` and :func:`find_metrics` serve the
command line, and run none of the user's code.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from convert.errors import UsageError
from convert.loading.user_code import Guarded, find_callable, import_callable

Metric = Callable[[Any, Any], float]


def metric_names(texts: Sequence[str]) -> tuple[str, ...]:
    """The names that ``--metric`` texts give. Raises UsageError CNV-2055 for texts of another form, listing all."""
    wrong = [text for text in texts if not all(text.rpartition(":")[::2]) or not _name(text).isidentifier()]
    if wrong:
        raise UsageError(
            "CNV-2055",
            f"--metric takes module:callable or file.py:callable, not {', '.join(map(repr, wrong))}",
            hint="for instance --metric mypackage.metrics:iou, or --metric ./my.py:iou",
        )
    return tuple(_name(text) for text in texts)


def _name(text: str) -> str:
    return text.rpartition(":")[2].rpartition(".")[2]


def find_metrics(texts: Sequence[str]) -> None:
    """Refuse what can be told to be wrong without running it, before a conversion begins.

    Raises UsageError CNV-2055 for the form of a text, CNV-2018 for a package, file or name in a file that isn't there.
    """
    metric_names(texts)
    for text in texts:
        find_callable(text, "--metric")


def load_metrics(texts: Sequence[str]) -> dict[str, Metric]:
    """Metrics by name. What one raises, or gives that is no finite number, becomes UsageError CNV-2056.

    Raises UsageError CNV-2018 and CNV-2019 for a module, file or callable that isn't there or can't be imported.
    """
    names = metric_names(texts)
    return {name: _guarded(name, import_callable(text, "--metric")) for name, text in zip(names, texts, strict=True)}


def _guarded(name: str, metric: Callable[..., Any]) -> Metric:
    hint = "a metric gets two numpy arrays of one output, (reference, candidate), and gives one finite number"

    def call(reference: Any, candidate: Any) -> float:
        with Guarded("CNV-2056", f"the metric {name!r} failed", hint=hint, error=UsageError):
            value = float(metric(reference, candidate))
        if not math.isfinite(value):
            raise UsageError("CNV-2056", f"the metric {name!r} gave {value}", hint=hint)
        return value

    return call
