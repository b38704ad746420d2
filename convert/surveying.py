"""A user's model file as a graph that the support data can be asked about: ONNX files as they are, others exported."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from convert.commands.options import request_from
from convert.commands.show import progress
from convert.loading.onnx_files import outline_onnx
from convert.loading.sniff import identify
from convert.pipeline import with_graph
from convert.settings import load_settings
from convert.values import ModelFile

T = TypeVar("T")


def survey_model(model: str, given: dict[str, Any], use: Callable[[Any, ModelFile], T], *, quiet: bool) -> T:
    """Hand the ``onnx.ModelProto`` of a model file to ``use``.

    An ONNX file is taken as it stands, without running anything of it; any other format is loaded, exported and
    simplified as a conversion would (and cached). Raises LoadError and ExportError.
    """
    found = identify(Path(model))
    if found.format == "onnx":
        outline_onnx(Path(found.path), found.bytes)
        return use(_read(Path(found.path)), found)
    settings = load_settings({name: given[name] for name in ("timeout", "memory", "jobs")})
    request = request_from(model, {**given, "soc": "", "targets": ()}, until="check")
    with progress(quiet=quiet) as listener:
        return with_graph(request, settings, lambda file, graph: use(_read(graph.model_path), file), listener)


def _read(path: Path) -> Any:
    """The model of a file; its local functions are inlined, as a conversion would do."""
    from onnx.inliner import inline_local_functions

    from convert.graphs import read_model

    model = read_model(path)
    return inline_local_functions(model) if model.functions else model


def at_opsets(model: Any) -> Callable[[int], Any]:
    """Gives the model at other opsets by lowering; None where a node of it has no equivalent there."""
    from convert.lowering import LoweringRefused, lower

    known: dict[int, Any] = {}

    def at_opset(opset: int) -> Any:
        if opset not in known:
            try:
                known[opset] = lower(model, opset)
            except LoweringRefused:
                known[opset] = None
        return known[opset]

    return at_opset
