# ruff: noqa: N815
"""The network and the ONNX parser."""

from pathlib import Path

from magicmind._double.base import FLOATS, OK, ONNX_TYPES, WIDE, DataType, Dims, fault, internal, invalid, log_error

KNOWN = {
    "Abs", "Add", "And", "ArgMax", "AveragePool", "BatchNormalization", "Cast", "Ceil", "Clip", "Concat",
    "Constant", "ConstantOfShape", "Conv", "ConvTranspose", "Cos", "Div", "Equal", "Erf", "Exp", "Expand",
    "Flatten", "Floor", "GRU", "Gather", "Gemm", "GlobalAveragePool", "Greater", "Identity", "If", "LSTM",
    "LeakyRelu", "Less", "Log", "LogSoftmax", "Loop", "MatMul", "Max", "MaxPool", "Min", "Mod", "Mul", "Neg",
    "NonMaxSuppression", "NonZero", "Not", "Or", "Pad", "Pow", "Range", "Reciprocal", "ReduceMax", "ReduceMean",
    "ReduceMin", "ReduceProd", "ReduceSum", "Relu", "Reshape", "Resize", "RoiAlign", "ScatterElements",
    "ScatterND", "Shape", "Sigmoid", "Sin", "Slice", "Softmax", "Split", "Sqrt", "Squeeze", "Sub", "Sum", "Tanh",
    "TopK", "Transpose", "Unsqueeze", "Where",
}  # fmt: skip
AXES_AS_INPUT = {"Squeeze": 13, "Unsqueeze": 13, "ReduceSum": 13, "Split": 13}


class Tensor:
    """An input, an output, or what runs between nodes."""

    def __init__(self, name, kind, sizes):
        self.name, self.kind, self.sizes = name, kind, sizes
        self.stale = False

    def get_tensor_name(self):
        return self.name

    def get_data_type(self):
        return self.kind

    def set_data_type(self, kind):
        if not isinstance(kind, DataType):
            return invalid("not a DataType")
        if (kind in FLOATS) != (self.kind in (*FLOATS, DataType.DOUBLE)):
            return invalid(f"{self.name}: {self.kind.name} can not be set to {kind.name}")
        self.kind = kind
        return OK

    def get_dimension(self):
        return Dims(self.sizes)

    def set_dimension(self, dims):
        if not isinstance(dims, Dims):
            return invalid("not a Dims")
        wanted = dims.GetDims()
        if len(wanted) != len(self.sizes):
            return invalid(f"{self.name} has rank {len(self.sizes)}, got {len(wanted)}")
        if any(old >= 0 and new != old for old, new in zip(self.sizes, wanted, strict=True)):
            return invalid(f"{self.name}: {wanted} does not fit {self.sizes}")
        self.sizes = wanted
        return OK


class Node:
    def __init__(self, network, proto, tensors):
        self.network, self.proto, self.generation = network, proto, network.generation
        self.inputs = [tensors[name] for name in proto.input if name]
        self.outputs = [tensors[name] for name in proto.output if name]

    def get_node_name(self):
        return f"main/mm.{self.proto.op_type}" if fault() == "names" else f"main/{self.proto.name}"

    def get_node_type(self):
        return f"I{self.proto.op_type}Node"

    def get_input_count(self):
        return len(self.inputs)

    def get_output_count(self):
        return len(self.outputs)

    def get_input(self, place):
        return self.inputs[place]

    def get_output(self, place):
        return self.outputs[place]

    def set_precision(self, place, kind):
        if self.generation != self.network.generation:
            return internal("the node is of a graph that calibration replaced")
        if kind not in (*FLOATS, DataType.QINT8, DataType.QINT16) or not 0 <= place < len(self.inputs):
            return invalid(f"precision of input {place} of {self.get_node_name()}")
        if self.inputs[place].kind not in FLOATS:
            return invalid(f"input {place} of {self.get_node_name()} is {self.inputs[place].kind.name}")
        if kind is DataType.FLOAT32:
            self.network.kept.add(self.proto.name)
        return OK

    def set_output_type(self, place, kind):
        if self.generation != self.network.generation:
            return internal("the node is of a graph that calibration replaced")
        if kind not in FLOATS or self.outputs[place].kind not in FLOATS:
            return invalid(f"type of output {place} of {self.get_node_name()}")
        return OK


class Network:
    def __init__(self):
        self.path, self.proto = None, None
        self.inputs, self.outputs, self.nodes = [], [], []
        self.kept, self.ranges, self.generation = set(), None, 0

    def get_input_count(self):
        return len(self.inputs)

    def get_output_count(self):
        return len(self.outputs)

    def get_input(self, place):
        return self.inputs[place]

    def get_output(self, place):
        return self.outputs[place]

    def get_all_nodes_in_network(self):
        return [Node(self, node.proto, self.tensors) for node in self.nodes]

    def find_node_by_name(self, name):
        return next((node for node in self.get_all_nodes_in_network() if node.get_node_name() == name), None)

    def wide(self):
        """Tensors of 64 bits, whatever they are."""
        return [tensor.name for tensor in self.tensors.values() if tensor.kind in WIDE]


class ModelKind:
    kOnnx, kPytorch, kCaffe, kTensorflow = "onnx", "pytorch", "caffe", "tensorflow"


class Parser:
    def __init__(self, kind):
        self.kind = kind

    def parse(self, network, path, *_more):
        import onnx
        from google.protobuf.message import DecodeError

        if self.kind != ModelKind.kOnnx:
            return invalid("the stand-in reads ONNX only")
        if not Path(path).is_file():
            return invalid(f"can not open {path}")
        try:
            model = onnx.load(path)
        except (DecodeError, ValueError):
            return internal("Onnx mlir graph is illegal")
        if refused := refusal(model):
            log_error("magicmind/translation/onnx/module_loader.cc:120", "Failed to verify onnx mlir module")
            print(refused, flush=True)
            log_error("mm_parser_core.h:77", "Internal: Onnx mlir graph is illegal")
            return internal("Onnx mlir graph is illegal")
        fill(network, model)
        return OK


def refusal(model):
    """The MLIR line for the first node that the importer does not take; empty: it takes all."""
    opset = next((one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), 1)
    for node in model.graph.node:
        where = f'loc("{node.name}"): error: '
        if opset >= AXES_AS_INPUT.get(node.op_type, 99) and len(node.input) > 1:
            return f"{where}'onnx.{node.op_type}' op requires a single operand"
        if node.op_type not in KNOWN or node.domain not in ("", "ai.onnx"):
            told = f"unregistered operation 'onnx.{node.op_type}' found in dialect ('onnx')"
            return f"{where}{told} that does not allow unknown operations"
    return "" if opset < 13 else f"loc(\"model\"): error: 'onnx.EntryPoint' op of opset {opset} is not known"


def fill(network, model):
    import onnx

    network.proto = model
    shaped = onnx.shape_inference.infer_shapes(model)
    tensors = {}

    def add(value):
        kind = DataType[ONNX_TYPES.get(value.type.tensor_type.elem_type, "FLOAT32")]
        sizes = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in value.type.tensor_type.shape.dim]
        tensors[value.name] = Tensor(value.name, kind, sizes)

    for value in (*shaped.graph.value_info, *shaped.graph.input, *shaped.graph.output):
        add(value)
    for one in model.graph.initializer:
        tensors[one.name] = Tensor(one.name, DataType[ONNX_TYPES.get(one.data_type, "FLOAT32")], list(one.dims))
    for node in model.graph.node:
        for name in (*node.input, *node.output):
            tensors.setdefault(name, Tensor(name, DataType.FLOAT32, []))
    weights = {one.name for one in model.graph.initializer}
    network.tensors = tensors
    network.inputs = [tensors[one.name] for one in model.graph.input if one.name not in weights]
    network.outputs = [tensors[one.name] for one in model.graph.output]
    network.nodes = [Node(network, node, tensors) for node in model.graph.node]
