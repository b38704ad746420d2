"""A model, a machine without any toolkit, and a bundle that it wrote."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from handoff_kit import Machine, bash, device_outputs, install_cann, run_om, unpack
from onnx import TensorProto, helper, numpy_helper, save

from convert.host import StageHost
from convert.request import Conversion


@pytest.fixture(scope="session")
def mlp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A two-layer perceptron ``x:float32[2,8] → y:float32[2,3]`` as ONNX."""
    rng = np.random.default_rng(7)
    weights = {"w1": rng.standard_normal((8, 32)) / 3, "w2": rng.standard_normal((32, 3)) / 6}
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"], name="first"),
        helper.make_node("Relu", ["h"], ["r"], name="relu"),
        helper.make_node("MatMul", ["r", "w2"], ["y"], name="second"),
    ]
    graph = helper.make_graph(
        nodes,
        "mlp",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(array.astype("f4"), name) for name, array in weights.items()],
    )
    path = tmp_path_factory.mktemp("models") / "mlp.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="session")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StageHost]:
    """The workers of a machine without any toolkit."""
    with StageHost(tmp_path_factory.mktemp("host") / "workers.log") as host:
        yield host


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory, host: StageHost) -> Machine:
    """A machine without any toolkit, whose cache all tests share."""
    return Machine(tmp_path_factory.mktemp("bare"), host)


@pytest.fixture
def machine(tmp_path: Path, bare: Machine) -> Machine:
    """The same machine with a registry and an output folder of its own."""
    own = Machine(tmp_path / "machine", bare.host)
    own.settings = type(own.settings)(
        **{**{name: getattr(own.settings, name) for name in own.settings.__struct_fields__}}
        | {"cache_dir": bare.settings.cache_dir}
    )
    return own


@pytest.fixture(scope="session")
def handed(bare: Machine, mlp: Path) -> Conversion:
    """The conversion that ended in a bundle for the family Ascend910B."""
    return bare.convert(mlp, "Ascend910B")


@pytest.fixture
def bundle(handed: Conversion, tmp_path: Path) -> Path:
    """The unpacked bundle."""
    assert handed.targets[0].handoff is not None
    return unpack(handed.targets[0].handoff["path"], tmp_path)


@pytest.fixture(scope="session")
def cann(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a machine with CANN 8.5.0 and an Ascend910B3."""
    return install_cann(tmp_path_factory.mktemp("cann"), "8.5.0", soc="Ascend910B3")


@pytest.fixture(scope="session")
def _compiled(handed: Conversion, cann: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert handed.targets[0].handoff is not None
    folder = unpack(handed.targets[0].handoff["path"], tmp_path_factory.mktemp("compiled"))
    ended = bash(folder, cann)
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.fixture
def compiled(_compiled: Path, tmp_path: Path) -> Path:
    """A bundle that was compiled on the machine with CANN."""
    return Path(shutil.copytree(_compiled, tmp_path / _compiled.name))


@pytest.fixture
def measured(compiled: Path) -> Path:
    """A compiled bundle with the outputs that the card of the stand-in gave."""
    device_outputs(compiled, run_om)
    return compiled
