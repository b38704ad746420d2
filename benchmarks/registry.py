"""What the operator support registry costs: judging 50,000 nodes beside ``onnx.load``, and loading all of its data."""

from __future__ import annotations

import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measure import Row

NODES = 50_000
ROUNDS = 5
LOAD_LIMIT = 0.050
TARGETS = ("Ascend910B3", "MI210", "A100", "cpu", "MLU370", "C500")
LOAD_ALL = """
import time
from op_registry.query import providers
from op_registry.support import load_support
from op_registry.targets import all_targets
from op_registry.vendors import all_vendors
begun = time.process_time()
for vendor in all_vendors().values():
    load_support(vendor.name, vendor.default_version)
all_targets(), providers()
print(time.process_time() - begun)
"""


def rows() -> list[Row]:
    """The rows of the table: the slowest target for each kind of graph, and the load of all data.

    The last kind has no bound: it is the hardest there is (a graph that states nothing, as no exporter writes it).
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        found = [
            _worst(path, "types stated", chain(NODES, stated=True)),
            _worst(path, "types to be followed", chain(NODES, stated=False)),
            _worst(path, "several types stated", chain(NODES, stated=True, shapes=True)),
            _worst(path, "several types to be followed", chain(NODES, stated=False, shapes=True), bound=0.0),
        ]
    return [*found, _load_row()]


def _load_row() -> Row:
    seconds = min(
        float(subprocess.run([sys.executable, "-c", LOAD_ALL], capture_output=True, text=True, check=True).stdout)
        for _ in range(ROUNDS)
    )
    return Row(what="loading all vendors' data, against 50 ms", ours=seconds, base=LOAD_LIMIT, bound=1.0)


def _worst(path: Path, kind: str, made: Any, *, bound: float = 1.0) -> Row:
    import onnx

    from op_registry.judge import judge_model
    from op_registry.targets import find_target

    onnx.save(made, path)
    loads, judged = [], {name: [0.0] * ROUNDS for name in TARGETS}
    for place in range(ROUNDS):
        for name in TARGETS:
            begun = time.process_time()
            model = onnx.load(path)
            loads.append(time.process_time() - begun)
            begun = time.process_time()
            judge_model(model, find_target(name))
            judged[name][place] = time.process_time() - begun
    worst = max(TARGETS, key=lambda name: min(judged[name]))
    what = f"judging {NODES:,} nodes, {kind} (slowest: {worst}), against onnx.load"
    return Row(what=what, ours=min(judged[worst]), base=min(loads), bound=bound)


def chain(nodes: int, *, stated: bool, shapes: bool = False) -> Any:
    """A chain of common operators: a tenth of them convolutions with weights, a fifth with attributes to look into.

    ``stated``: value_info for every value. ``shapes``: a tenth are Shape, so that types must be told apart.
    """
    from onnx import TensorProto, helper

    made, tensors, infos, last = [], [], [], "x"
    spatial: dict[str, Any] = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "strides": [1, 1]}
    for place in range(nodes):
        kind, name = place % 10, f"v{place}"
        if kind == 0:
            # Small, and none like another: what is alike would become one weight that all nodes share.
            weights = struct.pack("<f", (place + 1) * 1e-9) * (8 * 8 * 9)
            tensors.append(helper.make_tensor(f"w{place}", TensorProto.FLOAT, [8, 8, 3, 3], weights, raw=True))
            node = helper.make_node("Conv", [last, f"w{place}"], [name], **spatial)
        elif kind == 6:
            node = helper.make_node("Transpose", [last], [name], perm=[0, 1, 3, 2])
        elif kind == 8:
            node = helper.make_node("MaxPool", [last], [name], **spatial)
        elif kind == 3 and shapes:
            made.append(helper.make_node("Shape", [last], [f"s{place}"], name=f"/layer{place}/Shape"))
            continue
        else:
            op = ("", "Relu", "Add", "Mul", "Relu", "Add", "", "Relu", "", "Sigmoid")[kind]
            node = helper.make_node(op, [last, last] if op in ("Add", "Mul") else [last], [name])
        node.name = f"/layer{place}/{node.op_type}"
        made.append(node)
        if stated:
            infos.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 16, 16]))
        last = name
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8, 16, 16]) for name in ("x", last)]
    graph = helper.make_graph(made, "chain", ends[:1], ends[1:], tensors, value_info=infos)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
