"""The flow schedules what the command line does: the same document, and a failed gate is a failed run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from onnx import TensorProto, helper, numpy_helper, save

    weight = numpy_helper.from_array(np.arange(12, dtype="f4").reshape(4, 3) / 7, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
        "linear",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [weight],
    )
    path = tmp_path_factory.mktemp("flow") / "linear.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def places(folder: Path) -> dict[str, Any]:
    return {name: str(folder / name) for name in ("registry", "cache_dir", "out")}


def test_the_task_gives_the_document_of_the_command_line(model: Path, tmp_path: Path) -> None:
    from convert.request import Request
    from convert.values import LoadOptions
    from flows.convert_model import convert_task

    request = Request(load=LoadOptions(path=str(model)), targets=("cpu",))
    document = convert_task.fn(msgspec.to_builtins(request), places(tmp_path))
    assert document["status"] == "published"
    assert document["targets"][0]["artifact"]["ref"] == "linear:1.0.0-cpu"


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
def test_a_flow_run_publishes_and_a_failed_gate_fails_the_run(server: str, model: Path, tmp_path: Path) -> None:
    from flows.convert_model import convert_model

    done = convert_model(str(model), ["cpu"], settings=places(tmp_path), return_state=True)
    assert done.is_completed()
    assert done.message == "linear:1.0.0 published"
    failed = convert_model(
        str(model), ["cpu"], precision="bf16", gate=["rel_l2=1e-12"], settings=places(tmp_path), return_state=True
    )
    assert failed.is_failed()
    assert failed.message is not None
    assert failed.message.startswith("[CNV-8001]")


def test_importing_a_flow_starts_no_server_of_its_own() -> None:
    import flows.convert_model

    assert flows.convert_model.convert_model.name == "convert_model"
    assert os.environ["PREFECT_SERVER_ALLOW_EPHEMERAL_MODE"] in ("false", "true")
