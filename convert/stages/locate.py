"""locate: an artifact that failed its gate ─▶ ``Located``: the first node whose output departs from the graph's.

For backends that can tell what their artifact computes on its way (``inside``). The sample is the one that the gate
failed worst on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from convert.arrays import load_npz
from convert.backends import load_backend
from convert.backends.base import CannotRun, Inside, RunRequest
from convert.errors import CompileFailed
from convert.nodewise.align import relative_error
from convert.nodewise.departs import Side
from convert.stages.compile import prepare_folder, runner_for
from convert.values import CompiledArtifact, Located, OnnxGraph, ValidateOptions, Where

MOST_BYTES = 1 << 30
"""Of the values of a graph that are compared at once."""
NO_NUMBER = 1e9
"""The relative L2 of a value that has NaN or infinities where the graph has numbers."""
JUMP = 3.0
"""A node makes the error that leaves it where that is so much larger than what arrives."""


def locate_departure(
    graph: OnnxGraph, artifact: CompiledArtifact, options: ValidateOptions, where: Where, folder: Path
) -> Located:
    """Compare what an artifact computes with the graph.

    Raises :class:`CompileFailed` CNV-7341 where the values inside can't be had, or end in outputs that are much worse
    than the artifact's own.
    """
    prepare_folder(graph, artifact.plan, folder)
    feed = load_npz(graph.path(f"samples/{where.sample:03d}.npz"))
    told = _inside(graph, artifact, feed, options, folder)
    side = Side(graph, folder / "runs")
    try:
        return _first(side, feed, told, where, artifact)
    finally:
        side.close()


def _inside(
    graph: OnnxGraph, artifact: CompiledArtifact, feed: dict[str, Any], options: ValidateOptions, folder: Path
) -> Inside:
    backend: Any = load_backend(artifact.backend)
    request = RunRequest(artifact=artifact, graph=graph, folder=folder)
    try:
        told: Inside | CannotRun = backend.inside(request, feed, runner_for(options.timeout, folder, options.launcher))
    except (OSError, ValueError) as error:
        raise _unknown(str(error)) from error
    if isinstance(told, CannotRun):
        raise _unknown(told.reason)
    return told


def _unknown(why: str) -> CompileFailed:
    return CompileFailed(
        "CNV-7341",
        f"what the artifact computes on its way is not known: {why}",
        hint="the gate's verdict stands without it; compare the outputs with `convert diff`",
    )


def _first(side: Side, feed: dict[str, Any], told: Inside, where: Where, artifact: CompiledArtifact) -> Located:
    """The first node in the graph's order that makes more error than arrives; else the first that departs at all."""
    known = [name for name in told.values if name in side.flow.makers]
    if sum(told.values[name].nbytes for name in known) > MOST_BYTES:
        raise _unknown(f"its {len(known)} values have more than {MOST_BYTES >> 30} GiB")
    exact = side.whole(known, feed)
    errors = {
        name: relative_error(exact[name], told.values[name])
        for name in known
        if exact[name].size == told.values[name].size and exact[name].dtype.kind == "f"
    }
    limit = where.limit
    ends = max((errors.get(name, 0.0) for name in side.flow.outputs), default=0.0)
    if ends > limit and ends > JUMP * where.worst:
        raise _unknown(f"by {told.how} the outputs are off by {ends:.3g}, and the artifact's own by {where.worst:.3g}")
    departed = [
        Located(
            parent=artifact.digest,
            how=told.how,
            compared=len(errors),
            node=step.name,
            op=step.op,
            module=step.module,
            output=value,
            error=errors[value],
            arriving=max((_nearest(side, name, errors) for name in step.inputs), default=0.0),
            low=float(np.min(exact[value])),
            high=float(np.max(exact[value])),
        )
        for step in side.flow.steps
        for value in step.outputs
        if errors.get(value, 0.0) > limit and _lasts(side, value, errors, limit)
    ]
    # What is no number any more is the cause, whatever was rounded before it.
    broken = [one for one in departed if one.error >= NO_NUMBER > one.arriving]
    made = [one for one in departed if one.error > JUMP * one.arriving]
    nowhere = Located(parent=artifact.digest, how=told.how, compared=len(errors))
    return (broken or made or departed or [nowhere])[0]


def _lasts(side: Side, value: str, errors: dict[str, float], limit: float) -> bool:
    """Whether an error goes on: where all that read a value are right, the tool told the value in another form."""
    readers = side.flow.users.get(value, ())
    after = [errors[name] for number in readers for name in side.flow.steps[number].outputs if name in errors]
    return not after or max(after) > limit


def _nearest(side: Side, value: str, errors: dict[str, float], depth: int = 8) -> float:
    """The error of a value, or of the nearest known ones that it was computed from."""
    if value in errors:
        return errors[value]
    if depth == 0 or value not in side.flow.makers:
        return 0.0
    step = side.flow.steps[side.flow.makers[value]]
    return max((_nearest(side, name, errors, depth - 1) for name in step.inputs), default=0.0)
