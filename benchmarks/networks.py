"""Networks of ONNX nodes for the precision bench: residual convolutions, and a transformer that can fail."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
OPSET = 17


class Builder:
    """Collects nodes and weights; every method gives the name of the value that it made."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def weight(self, name: str, values: Any, dtype: str = "float32") -> str:
        """A weight; random ones are scaled so that values keep their size."""
        self.weights.append(numpy_helper.from_array(np.asarray(values).astype(dtype), name))
        return name

    def number(self, value: float) -> str:
        """A number of its own for one node: ``auto_mixed_precision`` can't share them between kept and other nodes."""
        return self.weight(f"number{len(self.weights)}", value)

    def node(self, op: str, inputs: list[str], output: str, **attributes: Any) -> str:
        """One node, named after its output."""
        self.nodes.append(helper.make_node(op, inputs, [output], name=f"{output}/{op}", **attributes))
        return output

    def dense(self, x: str, name: str, width: int, out: int) -> str:
        """A linear layer."""
        weight = self.weight(f"{name}.w", self.rng.standard_normal((width, out)) / np.sqrt(width))
        bias = self.weight(f"{name}.b", np.zeros(out))
        return self.node("Add", [self.node("MatMul", [x, weight], f"{name}.mm"), bias], f"{name}.out")

    def model(self, shape: list[int], out_shape: list[int], output: str) -> onnx.ModelProto:
        """The model with the input ``x``."""
        ends = [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, shape),
            helper.make_tensor_value_info(output, TensorProto.FLOAT, out_shape),
        ]
        graph = helper.make_graph(self.nodes, "g", ends[:1], ends[1:], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)


def convolutions(blocks: int = 8, width: int = 64, size: int = 56) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Residual blocks of two convolutions."""
    net, x = Builder(), "x"
    for block in range(blocks):
        y = x
        for place in range(2):
            kernel = net.rng.standard_normal((width, width, 3, 3)) / np.sqrt(width * 9)
            weight = net.weight(f"b{block}.w{place}", kernel)
            y = net.node("Conv", [y, weight], f"b{block}.conv{place}", pads=[1, 1, 1, 1])
            if place == 0:
                y = net.node("Relu", [y], f"b{block}.relu")
        x = net.node("Relu", [net.node("Add", [y, x], f"b{block}.sum")], f"b{block}.out")
    y = net.node("GlobalAveragePool", [x], "y")
    shape = [1, width, size, size]
    return net.model(shape, [1, width, 1, 1], y), {"x": net.rng.standard_normal(shape).astype(np.float32)}


def tiny_nodes(count: int) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A graph of many nodes of 16 elements each, as unrolled loops give: all dispatch, next to no work."""
    net, values = Builder(), ["x"]
    for place in range(count):
        before, op = values[-1], ("Add", "Mul", "Tanh", "Sub", "Relu")[place % 5]
        inputs = [before]
        if op in ("Add", "Mul", "Sub"):
            number = 0.9 if op == "Mul" else 0.1
            inputs.append(net.number(number) if place % 2 else values[-1 - (place * 7) % min(len(values), 16)])
        values.append(net.node(op, inputs, f"v{place}"))
    return net.model([1, 16], [1, 16], values[-1]), {"x": net.rng.standard_normal((1, 16)).astype(np.float32)}


def _norm(net: Builder, x: str, name: str, width: int) -> str:
    mean = net.node("ReduceMean", [x], f"{name}.mean", axes=[-1])
    centred = net.node("Sub", [x, mean], f"{name}.centred")
    variance = net.node(
        "ReduceMean", [net.node("Pow", [centred, net.number(2.0)], f"{name}.square")], f"{name}.variance", axes=[-1]
    )
    root = net.node("Sqrt", [net.node("Add", [variance, net.number(1e-5)], f"{name}.safe")], f"{name}.root")
    scaled = net.node(
        "Mul", [net.node("Div", [centred, root], f"{name}.div"), net.weight(f"{name}.g", np.ones(width))], f"{name}.mul"
    )
    return net.node("Add", [scaled, net.weight(f"{name}.b", np.zeros(width))], f"{name}.out")


def _attention(net: Builder, x: str, name: str, width: int, masked: bool) -> str:
    parts = {}
    for part in "qkv":
        split = net.node("Reshape", [net.dense(x, f"{name}.{part}", width, width), "heads"], f"{name}.{part}.split")
        order = [0, 2, 3, 1] if part == "k" else [0, 2, 1, 3]
        parts[part] = net.node("Transpose", [split], f"{name}.{part}.turned", perm=order)
    scores = net.node(
        "Mul",
        [net.node("MatMul", [parts["q"], parts["k"]], f"{name}.scores"), net.number(1 / np.sqrt(width // 12))],
        f"{name}.scaled",
    )
    if masked:
        hidden = net.node("Mul", ["hidden", net.number(-1e9)], f"{name}.mask")
        scores = net.node("Add", [scores, hidden], f"{name}.masked")
    weights = net.node("Softmax", [scores], f"{name}.softmax")
    mixed = net.node(
        "Transpose", [net.node("MatMul", [weights, parts["v"]], f"{name}.mixed")], f"{name}.back", perm=[0, 2, 1, 3]
    )
    return net.dense(net.node("Reshape", [mixed, "joined"], f"{name}.joined"), f"{name}.out", width, width)


def transformer(
    layers: int = 2, width: int = 768, length: int = 128, heads: int = 12, *, faulty: bool = False
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A pre-norm transformer. ``faulty``: a mask of -1e9 in one layer, and values that overflow in every other one."""
    net, x = Builder(), "x"
    net.weight("heads", [0, 0, heads, width // heads], "int64")
    net.weight("joined", [0, 0, width], "int64")
    net.weight("hidden", np.triu(np.ones((length, length)), 1))
    for layer in range(layers):
        name = f"l{layer}"
        attended = _attention(net, _norm(net, x, f"{name}.n1", width), f"{name}.att", width, faulty and layer == 1)
        x = net.node("Add", [x, attended], f"{name}.res1")
        y = net.dense(_norm(net, x, f"{name}.n2", width), f"{name}.up", width, 4 * width)
        wave = net.node(
            "Add",
            [
                net.node("Erf", [net.node("Mul", [y, net.number(1 / np.sqrt(2))], f"{name}.g1")], f"{name}.g2"),
                net.number(1.0),
            ],
            f"{name}.g3",
        )
        y = net.dense(net.node("Mul", [y, wave], f"{name}.g4"), f"{name}.down", 4 * width, width)
        if faulty and layer % 2:
            y = net.node(
                "Mul", [net.node("Mul", [y, net.number(2e4)], f"{name}.big"), net.number(30.0)], f"{name}.huge"
            )
            y = net.node("Div", [y, net.number(6e5)], f"{name}.normal")
        x = net.node("Add", [x, y], f"{name}.res2")
    y = _norm(net, x, "last", width)
    feed = {"x": net.rng.standard_normal((1, length, width)).astype(np.float32)}
    return net.model([1, length, width], [1, length, width], y), feed
