"""Running a graph in the precision that was built for, with ONNX Runtime: rounding at the borders of nodes."""

import copy

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

CAST_FREE = {"Constant", "Shape", "Identity"}
WEIGHTED = ("Conv", "ConvTranspose", "MatMul", "Gemm")


def session(model):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def ranges(network, samples, ops):
    """Per tensor that a quantized node reads: the greatest magnitude over all samples."""
    model = copy.deepcopy(network.proto)
    weights = {one.name for one in model.graph.initializer}
    names = sorted({node.input[0] for node in model.graph.node if node.op_type in ops} - weights)
    known = {one.name for one in (*model.graph.output, *model.graph.input)}
    model.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names if name not in known
    )
    runner = session(model)
    found = dict.fromkeys(names, 0.0)
    outputs = [one.name for one in model.graph.output]
    for arrays in samples:
        feeds = {tensor.name: array for tensor, array in zip(network.inputs, arrays, strict=True)}
        told = dict(zip(outputs, runner.run(outputs, wide(feeds, runner)), strict=True)) | feeds
        for name in names:
            found[name] = max(found[name], float(np.abs(told[name]).max(initial=0.0)))
    return found


def wide(feeds, runner):
    """Feeds in the types of the graph, which may be 64 bits wide."""
    kinds = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int64)": np.int64,
             "tensor(int32)": np.int32, "tensor(bool)": np.bool_, "tensor(double)": np.float64,
             "tensor(uint8)": np.uint8, "tensor(int8)": np.int8}  # fmt: skip
    return {one.name: feeds[one.name].astype(kinds[one.type]) for one in runner.get_inputs()}


def emulated(proto, header):
    """The graph with the precision of a build: weights rounded, and casts behind every node that is not kept."""
    model = copy.deepcopy(proto)
    mode, kept = header["mode"], set(header["kept"])
    shaped = onnx.shape_inference.infer_shapes(model)
    floats = {
        value.name
        for value in (*shaped.graph.value_info, *shaped.graph.output)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT
    }
    readers = {}
    for node in model.graph.node:
        for name in node.input:
            readers.setdefault(name, []).append(node)
    bits = 8 if mode.startswith("qint8") else 16
    for one in model.graph.initializer:
        users = readers.get(one.name, [])
        if one.data_type != TensorProto.FLOAT or any(node.name in kept for node in users):
            continue
        array = numpy_helper.to_array(one)
        quantized = mode.startswith("qint") and any(
            node.op_type in WEIGHTED and node.input[1] == one.name for node in users
        )
        if quantized:
            axis = 0 if header["per_axis"] and array.ndim == 4 else None
            array = rounded(array, bits, axis)
        elif mode.endswith("float16"):
            array = array.astype(np.float16).astype(np.float32)
        one.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(array, np.float32), one.name))
    nodes = []
    for node in model.graph.node:
        if mode.startswith("qint") and node.op_type in WEIGHTED and node.name not in kept:
            nodes += quantizing(node, header["ranges"], bits, model.graph)
        nodes.append(node)
        halves = mode.endswith("float16") and node.name not in kept and node.op_type not in CAST_FREE
        for place, name in enumerate(node.output if halves else ()):
            if name in floats:
                node.output[place] = f"{name}__raw"
                nodes.append(helper.make_node("Cast", [f"{name}__raw"], [f"{name}__half"], to=TensorProto.FLOAT16))
                nodes.append(helper.make_node("Cast", [f"{name}__half"], [name], to=TensorProto.FLOAT))
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    del model.graph.value_info[:]
    return model


def rounded(array, bits, axis):
    top = float(2 ** (bits - 1) - 1)
    others = tuple(place for place in range(array.ndim) if place != axis) if axis is not None else None
    most = np.abs(array).max(axis=others, keepdims=others is not None)
    scale = np.where(most > 0, most / top, 1.0)
    return (np.round(array / scale) * scale).astype(np.float32)


def quantizing(node, found, bits, graph):
    """Nodes that round a node's first input to steps of its calibrated range."""
    name = node.input[0]
    if name not in found:
        return []
    top = float(2 ** (bits - 1) - 1)
    scale = np.float32((found[name] or 1.0) / top)
    base = f"{name}__q_{node.output[0]}"
    graph.initializer.extend(
        [
            numpy_helper.from_array(scale, f"{base}_scale"),
            numpy_helper.from_array(np.float32(-top), f"{base}_low"),
            numpy_helper.from_array(np.float32(top), f"{base}_high"),
        ]
    )
    node.input[0] = base
    return [
        helper.make_node("Div", [name, f"{base}_scale"], [f"{base}_d"]),
        helper.make_node("Clip", [f"{base}_d", f"{base}_low", f"{base}_high"], [f"{base}_c"]),
        helper.make_node("Round", [f"{base}_c"], [f"{base}_r"]),
        helper.make_node("Mul", [f"{base}_r", f"{base}_scale"], [base]),
    ]
