"""Checks that every backend's ``plan`` makes: options by name and value, and the precision."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence

from convert.errors import UsageError
from convert.values import CompileOptions
from op_registry.values import Target


def check_options(options: CompileOptions, known: Mapping[str, str]) -> None:
    """Refuse options that a backend does not have, all at once. ``known``: name → what it takes, in words.

    Raises :class:`UsageError` CNV-2071.
    """
    unknown = [name for name in options.options if name not in known]
    if not unknown:
        return
    near = [match for name in unknown for match in difflib.get_close_matches(name, known, n=1)]
    offered = ", ".join(f"{name}={takes}" for name, takes in sorted(known.items())) or "none"
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        "CNV-2071",
        f"the backend {options.backend} has no option {', '.join(map(repr, unknown))}",
        hint=f"{guess}options: {offered}",
    )


def choice(options: CompileOptions, name: str, values: Sequence[str]) -> str:
    """One of the values that an option takes, the first where it is not given. Raises UsageError CNV-2075."""
    value = options.options.get(name, values[0])
    if value not in values:
        raise UsageError(
            "CNV-2075",
            f"--option {name}={value}: not one of {', '.join(values)}",
            hint=f"leave it out for {values[0]}, or take one of those",
        )
    return value


def check_precision(options: CompileOptions, target: Target, takes: Sequence[str]) -> None:
    """Refuse a precision that the backend or the target does not take. Raises UsageError CNV-2072."""
    state = target.precisions.get(options.precision, "unknown")
    if options.precision in takes and state != "no":
        return
    offered = [name for name in takes if target.precisions.get(name, "unknown") != "no"]
    raise UsageError(
        "CNV-2072",
        f"{target.name} does not take precision {options.precision}",
        hint=f"--precision takes {', '.join(offered)} for this target; leave it out for {target.default_precision}",
    )
