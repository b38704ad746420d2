"""The fixture that makes graphs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
from precision_graphs import Feed, MakeGraph, graph_in, parsed

from convert.values import OnnxGraph


@pytest.fixture
def make_graph(tmp_path: Path) -> MakeGraph:
    def make(text: str | onnx.ModelProto, *feeds: Feed, opset: int = 17, calibration: Sequence[Feed] = ()) -> OnnxGraph:
        model = parsed(text, opset) if isinstance(text, str) else text
        folder = tmp_path / f"graph{len(list(tmp_path.iterdir()))}"
        return graph_in(folder, model, feeds, calibration)

    return make
