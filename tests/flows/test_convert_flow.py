"""The flow schedules what the command line does: the same document, and a failed gate is a failed run."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]


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


def test_only_failures_of_the_surroundings_are_tried_again() -> None:
    from prefect.states import Failed

    from flows.faults import TRANSIENT, TransientFault, is_transient, raise_transient

    raise_transient(None)
    for code in ("CNV-8001", "CNV-7002", "CNV-5001", "CNV-3001", "CNV-1001", "CNV-1003"):
        raise_transient({"code": code, "message": "as it is"})
    for code in TRANSIENT:
        with pytest.raises(TransientFault) as caught:
            raise_transient({"code": code, "message": "the registry is away"})
        assert is_transient(None, None, Failed(data=caught.value))
    assert not is_transient(None, None, Failed(data=ValueError("a bug")))


def test_a_child_that_crashed_or_fell_silent_is_started_again_and_no_more_than_three_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from datetime import UTC, datetime, timedelta
    from uuid import uuid4

    from prefect.client.schemas.objects import FlowRun
    from prefect.states import Completed, Crashed, Failed, Running

    import flows.fanout

    given_up, started = [], []

    def start(self: flows.fanout.Child, parent: str) -> None:
        self.attempt += 1
        started.append(self.attempt)

    monkeypatch.setattr(flows.fanout.Child, "start", start)
    monkeypatch.setattr(flows.fanout, "give_up", given_up.append)

    def run(state: Any, **labels: int) -> FlowRun:
        return FlowRun(id=uuid4(), flow_id=uuid4(), state=state, state_type=state.type, labels=labels)

    child = flows.fanout.Child("convert_target/atc", "a@b", {})
    child.start("parent")
    long_ago = datetime.now(UTC) - timedelta(seconds=600)
    assert not child.judge(run(Running()), "parent")
    assert not child.judge(run(Running(timestamp=long_ago), **{"model-convert.alive": int(time.time())}), "parent")
    assert (started, given_up) == ([1], [])
    silent = run(Running(timestamp=long_ago))
    assert not child.judge(silent, "parent")
    assert (started, given_up) == ([1, 2], [silent.id])
    assert not child.judge(run(Crashed()), "parent")
    assert child.judge(run(Crashed(message="SIGKILL")), "parent")
    assert child.problem == "it crashed 3 times; the last: SIGKILL"
    assert flows.fanout.Child("x", "y", {}).judge(run(Failed()), "parent")
    assert flows.fanout.Child("x", "y", {}).judge(run(Completed()), "parent")


def test_keys_of_prefect_s_artifacts_hold_what_prefect_takes() -> None:
    from flows.showing import key_of
    from flows.values import card_pool

    assert key_of("report", "zoo/resnet50.fp16", "K100_AI") == "report-zoo-resnet50-fp16-k100-ai"
    assert card_pool("Ascend910B3") == "card-ascend910b3"


@pytest.mark.parametrize("name", ["toolkit", "card-ascend910", "card-mlu", "card-dcu"])
@pytest.mark.filterwarnings("ignore")
def test_the_job_templates_for_kubernetes_are_taken_by_the_server(server: str, name: str) -> None:
    import json

    from prefect.client.orchestration import get_client
    from prefect.client.schemas.actions import WorkPoolCreate

    template = json.loads((ROOT / "deploy" / "kubernetes" / f"{name}.json").read_text())
    (container,) = template["job_configuration"]["job_manifest"]["spec"]["template"]["spec"]["containers"]
    devices = [key for key in container["resources"]["limits"] if "/" in key]
    assert len(devices) == (0 if name == "toolkit" else 1)
    with get_client(sync_client=True) as client:
        made = client.create_work_pool(
            WorkPoolCreate(name=f"k8s-{name}", type="kubernetes", base_job_template=template)
        )
        assert made.base_job_template == template
        client.delete_work_pool(made.name)


def test_a_parent_that_ends_cancels_its_children_unless_its_worker_died(monkeypatch: pytest.MonkeyPatch) -> None:
    import flows.fanout
    import flows.watch

    cancelled = []
    monkeypatch.setattr(flows.fanout.Fanout, "cancel", lambda self: cancelled.append(self.parent))
    with pytest.raises(KeyboardInterrupt), flows.fanout.Fanout("ended"):
        raise KeyboardInterrupt
    with flows.fanout.Fanout("done"):
        pass
    watch = flows.watch.Watch()
    watch.reason = "orphaned"
    monkeypatch.setattr(flows.watch, "_WATCHES", [watch])
    with pytest.raises(KeyboardInterrupt), flows.fanout.Fanout("orphaned"):
        raise KeyboardInterrupt
    assert cancelled == ["ended"]
