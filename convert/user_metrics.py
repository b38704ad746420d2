"""``--metric module:callable``: a user's own metric, called with (reference, candidate) and giving a float.

Higher is better: over several samples the lowest value counts, and ``--gate NAME=VALUE`` asks for at least VALUE.
The name is the callable's. Loaded and called in the worker; only :func:`metric_names` serves the command line.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from convert.errors import UsageError

Metric = Callable[[Any, Any], float]
RAISED = (ArithmeticError, AssertionError, AttributeError, LookupError, NameError, RuntimeError, TypeError, ValueError)


def metric_names(texts: Sequence[str]) -> tuple[str, ...]:
    """The names that ``--metric`` texts give. Raises UsageError CNV-2055 for texts of another form, listing all."""
    wrong = [text for text in texts if not all(text.rpartition(":")[::2]) or not _name(text).isidentifier()]
    if wrong:
        raise _not_loaded(f"--metric takes module:callable or file.py:callable, not {', '.join(map(repr, wrong))}")
    return tuple(_name(text) for text in texts)


def _name(text: str) -> str:
    return text.rpartition(":")[2].rpartition(".")[2]


def load_metrics(texts: Sequence[str]) -> dict[str, Metric]:
    """Metrics by name. What one raises, or gives that is no number, becomes UsageError CNV-2056.

    Raises UsageError CNV-2055 for a module, file or callable that isn't there or can't be imported.
    """
    return {name: _guarded(name, _load(text)) for name, text in zip(metric_names(texts), texts, strict=True)}


def _load(text: str) -> Metric:
    where, _, path = text.rpartition(":")
    try:
        found: Any = _file_module(Path(where)) if where.endswith(".py") else importlib.import_module(where)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, OSError, SyntaxError, *RAISED) as error:
        raise _not_loaded(f"the metric {text!r} can't be loaded: {type(error).__name__}: {error}") from error
    if not callable(found):
        raise _not_loaded(f"the metric {text!r} is a {type(found).__name__}, nothing that can be called")
    metric: Metric = found
    return metric


def _file_module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _guarded(name: str, metric: Metric) -> Metric:
    def call(reference: Any, candidate: Any) -> float:
        try:
            value = float(metric(reference, candidate))
        except RAISED as error:
            raise _failed(f"the metric {name!r} raised {type(error).__name__}: {error}") from error
        if not math.isfinite(value):
            raise _failed(f"the metric {name!r} gave {value}")
        return value

    return call


def _not_loaded(message: str) -> UsageError:
    return UsageError(
        "CNV-2055",
        " ".join(message.split()),
        hint="for instance --metric mypackage.metrics:iou, or --metric ./my.py:iou with def iou(reference, candidate)",
    )


def _failed(message: str) -> UsageError:
    return UsageError(
        "CNV-2056",
        " ".join(message.split()),
        hint="a metric gets two numpy arrays of one output, (reference, candidate), and gives one finite number",
    )
