"""The second half of a conversion that is split over machines: a target, where its toolkit is, from a graph."""

from __future__ import annotations

import msgspec

from convert.across.graphs import SharedWork
from convert.errors import EXPECTED
from convert.host import StageHost
from convert.pipeline import RESTARTS, Run, workspace
from convert.request import Conversion, Request, Status, TargetResult
from convert.settings import Settings
from convert.stage import CacheCorrupt, Listener, Stages
from convert.target_options import check_request
from convert.target_run import TargetRun
from op_registry.targets import find_target
from op_registry.values import Target


def convert_graph(
    request: Request,
    settings: Settings,
    work: SharedWork,
    listener: Listener = lambda event: None,
    host: StageHost | None = None,
) -> Conversion:
    """Convert a graph that another machine made, for every target of the request; publishes nothing.

    Like ``convert_model`` it never raises an expected failure: that is in ``error`` of the conversion and its targets.
    """
    bare = msgspec.structs.replace(request, publish=False)
    with workspace(bare, settings, host) as (cache, workers, scratch):
        for attempt in range(RESTARTS):
            stages = Stages(cache, workers, use_cache=bare.use_cache, listener=listener)
            run = Run(bare, settings, stages, workers, scratch)
            run.model = work.model
            run.ops = work.graph.ops
            run.shared = [msgspec.structs.replace(stage, seconds=0.0, cached=True) for stage in work.stages]
            try:
                targets = [find_target(name) for name in bare.targets]
                return run.publish(bare.name, [_target(run, work, target) for target in targets])
            except CacheCorrupt:
                if attempt == RESTARTS - 1:
                    raise
    raise AssertionError("unreachable")


def _target(run: Run, work: SharedWork, target: Target) -> TargetResult:
    one = TargetRun(run, work.graph, target, run.request.name)
    try:
        check_request(run.request, [target])
        one.go()
    except EXPECTED as error:
        status: Status = "handoff" if one.result.status == "handoff" else "failed"
        one.result = msgspec.structs.replace(one.result, status=status, error=error.as_json())
    return one.finished()
