"""A user's model file as a graph that the support data can be asked about: ONNX files as they are, others exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from artifacts.scratch import temporary_folder
from convert.commands.options import request_from
from convert.commands.show import progress
from convert.guarding import guarded
from convert.host import Limits, StageHost
from convert.loading.onnx_files import outline_onnx
from convert.loading.sniff import identify
from convert.pipeline import with_stages
from convert.settings import load_settings, stage_limits
from convert.values import ModelFile

T = TypeVar("T")
SURVEY = "convert.stages.survey"


def survey_model(
    model: str, given: dict[str, Any], function: str, *args: Any, kind: type[T], quiet: bool, named: bool = False
) -> T:
    """Call a function of :mod:`convert.stages.survey` with the path of a model's graph, in a worker with limits.

    ``named``: it gets name and digest of the user's file before ``args``. An ONNX file is taken as it stands, without
    running anything of it; any other format is loaded, exported and simplified as a conversion would (and cached).
    Raises LoadError and ExportError, and what passes a limit.
    """
    settings = load_settings({name: given[name] for name in ("timeout", "memory", "jobs")})
    limits = Limits(**stage_limits(settings))

    def ask(host: StageHost, path: Path, file: ModelFile) -> T:
        about = (Path(model).name, file.sha256) if named else ()
        with guarded("check"), host.worker() as worker:
            answer = worker.call(f"{SURVEY}:{function}", str(path), *about, *args, limits=limits)
        return msgspec.json.decode(answer.value, type=kind)

    found = identify(Path(model))
    if found.format == "onnx":
        outline_onnx(Path(found.path), found.bytes)
        with temporary_folder("survey") as folder, StageHost(folder / "log", preload=(SURVEY,)) as host:
            return ask(host, Path(found.path), found)
    request = request_from(model, {**given, "soc": "", "targets": ()}, until="check")
    with progress(quiet=quiet) as listener:
        return with_stages(request, settings, lambda file, graph, run: ask(run.host, graph.model_path, file), listener)
