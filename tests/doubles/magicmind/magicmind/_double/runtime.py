"""Loading a model and running it on a card."""

import numpy as np

from magicmind._double import build
from magicmind._double.base import (
    OK,
    Code,
    DataType,
    Dims,
    Status,
    device_count,
    fault,
    internal,
    invalid,
    log_error,
    setting,
)

ACTIVE = []
AXES = {"NHWC": (0, 2, 3, 1), "NTC": (0, 2, 1), "NDHWC": (0, 2, 3, 4, 1)}


class System:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        ACTIVE.clear()

    def initialize(self):
        return OK

    def device_count(self):
        return device_count()


class Device:
    def __init__(self):
        self.id = 0

    def active(self):
        if not 0 <= self.id < device_count():
            return invalid(f"Invalid dev id {self.id}, dev_num is:{device_count()}")
        ACTIVE.append(self.id)
        return OK

    def create_queue(self):
        return Queue() if ACTIVE else None


class Queue:
    def sync(self):
        if fault() == "sync":
            log_error("cnrt.cc:99", "[cnrtError] cnrtQueueSync: MLU queue sync failed.")
            return internal("Return value is 100124 , MSG: CN_INVOKE_ERROR_ADDRESS_SPACE")
        return OK


class Model:
    class EngineConfig:
        def __init__(self):
            self.device_type = ""

    def __init__(self):
        self.header, self.graph = None, b""

    @classmethod
    def of(cls, header, graph):
        model = cls()
        model.header, model.graph = header, graph
        return model

    def serialize_to_file(self, path):
        return build.write(path, self.header, self.graph)

    def deserialize_from_file(self, path):
        if fault() == "noload":
            return internal("deserialize failed")
        self.header, self.graph, status = build.read(path)
        return status

    def get_input_num(self):
        return len(self.header["inputs"])

    def get_output_num(self):
        return len(self.header["outputs"])

    def get_input_names(self):
        return self.header["inputs"]

    def get_output_names(self):
        return self.header["outputs"]

    def get_input_dimensions(self):
        return [Dims(sizes) for sizes in self.header["input_sizes"]]

    def get_input_data_types(self):
        return [DataType[name] for name in self.header["input_kinds"]]

    def get_output_data_types(self):
        return [DataType[name] for name in self.header["output_kinds"]]

    def create_i_engine(self, config=None):
        arch = setting("ARCH", "mtp_372")
        if self.header is None or (config is not None and config.device_type != "MLU"):
            return None
        if arch not in self.header["archs"]:
            log_error("engine.cc:40", f"the model is for {sorted(self.header['archs'])}, and the device is {arch}")
            return None
        counts, here = self.header["archs"][arch], int(setting("CLUSTERS", "8"))
        if counts and min(counts) > here:
            log_error("engine.cc:61", f"cluster_num {min(counts)} is larger than the visible clusters {here}")
            return None
        return Engine(self)


class Engine:
    def __init__(self, model):
        self.model = model

    def create_i_context(self):
        return Context(self.model)


class Held:
    """A tensor of a context."""

    def __init__(self, kind, sizes, span=None):
        self.kind, self.shape, self.span = kind, tuple(sizes), span
        self.array, self.on_device = None, False

    def resize(self, shape):
        if self.span is None and tuple(shape) != self.shape:
            return invalid(f"shape {tuple(shape)} of a model of fixed shapes {self.shape}")
        if self.span and not all(low <= size <= high for size, low, high in zip(shape, *self.span, strict=True)):
            return invalid(f"shape {tuple(shape)} is not in dim_range")
        self.shape = tuple(shape)
        return OK

    def from_numpy(self, array):
        if array.dtype != np.dtype(self.kind.value):
            return invalid(f"data type {array.dtype}, and the input is {self.kind.name}")
        if tuple(array.shape) != self.shape or not array.flags["C_CONTIGUOUS"]:
            return invalid(f"shape {array.shape}, and the input is {self.shape}")
        self.array = array.copy()
        return OK

    def to(self, device):
        self.on_device = True
        return OK

    def asnumpy(self):
        return self.array


class Context:
    def __init__(self, model):
        import onnx

        from magicmind._double import execution

        self.model = model
        self.runner = execution.session(execution.emulated(onnx.load_from_string(model.graph), model.header))

    def create_inputs(self):
        header, held = self.model.header, []
        for place, (kind, sizes) in enumerate(zip(header["input_kinds"], header["input_sizes"], strict=True)):
            span = header["dim_range"].get(str(place))
            axes = AXES.get(header["input_layout"].get(str(place), {}).get("dst"))
            turned = [sizes[axis] for axis in axes] if axes else sizes
            ends = (
                [[span[end][axis] for axis in axes] if axes else span[end] for end in ("min", "max")] if span else None
            )
            held.append(Held(DataType[kind], turned, ends if sizes else None))
        return held

    def enqueue(self, inputs, outputs, queue):
        from magicmind._double import execution

        if fault() == "oom":
            log_error("cnrt.cc:12", "cnrtMalloc failed")
            return Status(Code.UNAVAILABLE, "out of memory")
        if any(one.array is None for one in inputs):
            return invalid("an input is empty")
        header, feeds = self.model.header, {}
        for place, (name, one) in enumerate(zip(header["inputs"], inputs, strict=True)):
            axes = AXES.get(header["input_layout"].get(str(place), {}).get("dst"))
            feeds[name] = one.array.transpose(np.argsort(axes)) if axes else one.array
        arrays = self.runner.run(None, execution.wide(feeds, self.runner))
        for place, (kind, array) in enumerate(zip(header["output_kinds"], arrays, strict=True)):
            axes = AXES.get(header["output_layout"].get(str(place), {}).get("dst"))
            array = array.transpose(axes) if axes else array
            if fault() == "wrong" and array.dtype.kind == "f":
                array = array * 2
            held = Held(DataType[kind], array.shape)
            held.array = np.array(array, np.dtype(held.kind.value), order="C")
            outputs.append(held)
        return OK
