"""A stand-in for pyACL: one card (ACL_DOUBLE_SOC), memory of this process, models of the stand-in atc.

ACL_DOUBLE_FAULT: hang, crash, memory (malloc fails), execute (AI Core fault), drift (from the third execution of a
process on the outputs are doubled). ACL_DOUBLE_VERSION: the CANN.
"""

from __future__ import annotations

import ctypes
import math
import os
import platform
import sys
import time
from pathlib import Path
from types import SimpleNamespace

sys.path.insert(0, str(Path(os.environ["ATC_DOUBLE_CODE"])))
from atc_facts import edition, family_of

SOC = os.environ.get("ACL_DOUBLE_SOC", "")
VERSION = os.environ.get("ATC_DOUBLE_VERSION", "8.5.0")
FAULT = os.environ.get("ACL_DOUBLE_FAULT", "")
VISIBLE = os.environ.get("ASCEND_RT_VISIBLE_DEVICES", "0")
STEP_INPUT = "ascend_mbatch_shape_data"
CODES = {"float32": 0, "float16": 1, "int8": 2, "int32": 3, "uint8": 4, "int64": 9, "float64": 11, "bool": 12}
WIDTHS = {"float32": 4, "float16": 2, "int8": 1, "int32": 4, "uint8": 1, "int64": 8, "float64": 8, "bool": 1}
ELEMENTS = {1: "float32", 7: "int64", 6: "int32", 9: "bool", 10: "float16", 11: "float64", 2: "uint8", 3: "int8"}
_memory: dict[int, ctypes.Array] = {}
_things: dict[int, object] = {}
_message = [""]
_executed = [0]


def _size(shape: list[int], kind: str) -> int:
    return math.prod(shape) * WIDTHS[kind]


def _keep(thing: object) -> int:
    _things[len(_things) + 1] = thing
    return len(_things)


def get_soc_name() -> str:
    return SOC


def get_recent_err_msg() -> str:
    return _message[0]


def init() -> int:
    return 0


def finalize() -> int:
    return 0


def _refused(model: dict) -> int:
    """A card loads what was built for it; the newest runtime compares architectures only."""
    made, here = model["soc"], SOC
    if edition(VERSION) >= (9, 2):
        if model["family"] == family_of(here, VERSION):
            return 0
        _message[0] = (
            f"E10001: Value {made} for parameter soc_version is invalid. "
            "Reason: Model soc version is not support in this device."
        )
        return 145006
    if made == here:
        return 0
    if edition(VERSION) >= (8, 5):
        _message[0] = f"EE1003: The value {made} for parameter omSocVersion is invalid. Expected value: {here}."
    else:
        _message[0] = (
            f"EE1001: The argument is invalid. Reason: supported socVersion={here}, but the model socVersion={made}"
        )
    return 507008


class _Model:
    def __init__(self, path: str) -> None:
        from om_format import read_om

        self.about, self.proto = read_om(Path(path))
        fixed = {tensor.name for tensor in self.proto.graph.initializer}
        self.inputs = [value for value in self.proto.graph.input if value.name not in fixed]
        self.outputs = list(self.proto.graph.output)
        self.shape: dict[str, list[int]] = {}
        self.last: list = []
        self.told = False

    @property
    def names(self) -> list[str]:
        return [value.name for value in self.inputs] + ([STEP_INPUT] if self.about["stepped"] else [])

    def kind(self, index: int) -> str:
        if self.about["aipp"] and self.inputs[index].name == self.about["aipp"][0]:
            return "uint8"
        return ELEMENTS[self.inputs[index].type.tensor_type.elem_type]

    def steps(self) -> list[list[int]]:
        text = self.about["steps"]
        parts = text.split(",") if self.about["stepped"] == "dynamic_batch_size" else text.split(";")
        return [[int(size) for size in part.split(",")] for part in parts]

    def shape_of(self, index: int, step: list[int]) -> list[int]:
        """An input's shape at a step."""
        rest = iter(step)
        shapes = {}
        for value in self.inputs:
            dims = []
            for dim in self.about["shapes"][value.name]:
                again = self.about["stepped"] == "dynamic_batch_size" and dims == [] and dim == "-1"
                dims.append(step[0] if again else next(rest) if dim == "-1" else int(dim))
            shapes[value.name] = dims
            if self.about["stepped"] == "dynamic_image_size":
                rest = iter(step)
        if self.about["aipp"] and self.inputs[index].name == self.about["aipp"][0]:
            from om_format import aipp_shape

            return aipp_shape(self.about["aipp"][1], shapes[self.inputs[index].name][0])
        return shapes[self.inputs[index].name]

    def size(self, index: int) -> int:
        if index >= len(self.inputs):
            return 64
        if self.about["ranged"]:
            return 0
        most = max(self.steps(), key=math.prod) if self.about["stepped"] else []
        return _size(self.shape_of(index, most), self.kind(index))


def _load(path: str) -> tuple[int, int]:
    if FAULT == "hang":
        time.sleep(600)
    if FAULT == "crash":
        os.abort()
    if not SOC:
        _message[0] = "EL0003: no device"
        return -1, 507899
    try:
        model = _Model(path)
    except (OSError, ValueError):
        return -1, 100013
    if model.about.get("host", "") not in ("", f"linux_{platform.machine()}"):
        return -1, 500002
    code = _refused(model.about)
    if code == 0 and model.about["weights"] and not (Path(path).parent / model.about["weights"]).is_file():
        return -1, 100003
    return (_keep(model), 0) if code == 0 else (-1, code)


class _Set(list):
    descs: dict[int, tuple[int, ...]]


def _dataset() -> int:
    made = _Set()
    made.descs = {}
    return _keep(made)


def _add(handle: int, buffer: int) -> tuple[int, int]:
    _things[handle].append(buffer)
    return handle, 0


def _malloc(size: int, policy: int) -> tuple[int, int]:
    if FAULT == "memory":
        _message[0] = "EL0004: out of memory"
        return 0, 207001
    block = ctypes.create_string_buffer(size)
    _memory[ctypes.addressof(block)] = block
    return ctypes.addressof(block), 0


def _free(pointer: int) -> int:
    return 0 if _memory.pop(pointer, None) is not None else 107000


def _memcpy(to: int, room: int, source: int, count: int, kind: int) -> int:
    if count > room or kind not in (1, 2):
        return 100000
    ctypes.memmove(to, source, count)
    return 0


def _bytes(buffer: int) -> tuple[int, int]:
    return _things[buffer]


def _set_step(model_id: int, dataset: int, index: int, step: list[int]) -> int:
    model = _things[model_id]
    if model.names[index] != STEP_INPUT:
        return 145000
    if step not in model.steps():
        return 145013
    model.shape = {value.name: model.shape_of(place, step) for place, value in enumerate(model.inputs)}
    return 0


def _set_dims(model_id: int, dataset: int, index: int, dims: dict) -> int:
    model = _things[model_id]
    flat = list(dims["dims"])
    if dims["dimCount"] != len(flat):
        return 145012
    for step in model.steps():
        wanted = [size for place in range(len(model.inputs)) for size in model.shape_of(place, step)]
        if wanted == flat:
            return _set_step(model_id, dataset, index, step)
    return 145013


def _set_desc(dataset: int, desc: int, index: int) -> tuple[int, int]:
    _things[dataset].descs[index] = tuple(_things[desc])
    return dataset, 0


def _shapes(model: _Model, dataset: _Set) -> list[list[int]] | int:
    if model.about["ranged"]:
        if len(dataset.descs) != len(model.inputs):
            return 145000
        for index, value in enumerate(model.inputs):
            for dim, size in zip(model.about["shapes"][value.name], dataset.descs[index], strict=True):
                low, _, high = dim.partition("~") if "~" in dim else (dim, "", dim)
                if dim != "-1" and not int(low) <= size <= int(high):
                    return 145021
        return [list(dataset.descs[index]) for index in range(len(model.inputs))]
    largest = max(model.steps(), key=math.prod) if model.about["stepped"] else []
    return [model.shape.get(value.name) or model.shape_of(index, largest) for index, value in enumerate(model.inputs)]


def _execute(model_id: int, given: int, wanted: int) -> int:
    import numpy as np

    if FAULT == "execute":
        _message[0] = "EZ9999: Inner Error! aicore exception"
        return 507015
    model, inputs, outputs = _things[model_id], _things[given], _things[wanted]
    if len(inputs) != len(model.names) or len(outputs) != len(model.outputs):
        return 145000
    shapes = _shapes(model, inputs)
    if isinstance(shapes, int):
        return shapes
    feeds = {}
    for index, value in enumerate(model.inputs):
        pointer, size = _bytes(inputs[index])
        count = _size(shapes[index], model.kind(index))
        if size < count or (not model.about["stepped"] and size != count):
            return 100017
        raw = ctypes.string_at(pointer, count)
        feeds[value.name] = np.frombuffer(raw, model.kind(index)).reshape(shapes[index])
    from om_format import compute

    model.last = compute(model.about, _copied(model.proto), feeds)
    _executed[0] += 1
    if FAULT == "drift" and _executed[0] > 2:
        model.last = [array * array.dtype.type(2) for array in model.last]
    outputs.descs = {index: array.shape for index, array in enumerate(model.last)}
    for index, array in enumerate(model.last):
        pointer, size = _bytes(outputs[index])
        if array.nbytes > size:
            return 145025
        ctypes.memmove(pointer, np.ascontiguousarray(array).ctypes.data, array.nbytes)
    return 0


def _copied(proto):
    return type(proto).FromString(proto.SerializeToString())


def _output_size(desc: int, index: int) -> int:
    model = _described(desc)
    if model.about["ranged"]:
        return 0
    return 1 << 20


def _described(desc: int) -> _Model:
    return _things[_things[desc][0]]


def _get_desc(desc: int, model_id: int) -> int:
    _things[desc].append(model_id)
    return 0


def _index(desc: int, name: str) -> tuple[int, int]:
    names = _described(desc).names
    return (names.index(name), 0) if name in names else (-1, 100000)


def _output_type(desc: int, index: int) -> int:
    model = _described(desc)
    kind = ELEMENTS[model.outputs[index].type.tensor_type.elem_type]
    return CODES["float16" if model.about["output_type"] == "FP16" and kind == "float32" else kind]


def create_data_buffer(pointer: int, size: int) -> int:
    return _keep((pointer, size))


def destroy_data_buffer(buffer: int) -> int:
    return 0


def create_tensor_desc(kind: int, shape: list[int], form: int) -> int:
    return _keep(list(shape))


def get_tensor_desc_num_dims(desc: int) -> int:
    return len(_things[desc])


def get_tensor_desc_dim_v2(desc: int, axis: int) -> tuple[int, int]:
    return _things[desc][axis], 0


rt = SimpleNamespace(
    set_device=lambda device: 0 if SOC and device == 0 and VISIBLE.split(",")[0] == "0" else 107001,
    reset_device=lambda device: 0,
    create_context=lambda device: (1, 0),
    malloc=_malloc,
    free=_free,
    memcpy=_memcpy,
)
mdl = SimpleNamespace(
    load_from_file=_load,
    unload=lambda model: 0,
    create_desc=lambda: _keep([]),
    destroy_desc=lambda desc: 0,
    get_desc=_get_desc,
    get_num_inputs=lambda desc: len(_described(desc).names),
    get_num_outputs=lambda desc: len(_described(desc).outputs),
    get_input_name_by_index=lambda desc, index: _described(desc).names[index],
    get_input_size_by_index=lambda desc, index: _described(desc).size(index),
    get_output_size_by_index=_output_size,
    get_input_data_type=lambda desc, index: CODES[_described(desc).kind(index)],
    get_output_data_type=_output_type,
    get_input_index_by_name=_index,
    get_cur_output_dims=lambda desc, index: (
        {"name": "", "dimCount": _described(desc).last[index].ndim, "dims": list(_described(desc).last[index].shape)},
        0,
    ),
    create_dataset=_dataset,
    destroy_dataset=lambda dataset: 0,
    add_dataset_buffer=_add,
    set_dynamic_batch_size=lambda model, data, index, batch: _set_step(model, data, index, [batch]),
    set_dynamic_hw_size=lambda model, data, index, h, w: _set_step(model, data, index, [h, w]),
    set_input_dynamic_dims=_set_dims,
    set_dataset_tensor_desc=_set_desc,
    get_dataset_tensor_desc=lambda dataset, index: _keep(list(_things[dataset].descs[index])),
    execute=_execute,
)
