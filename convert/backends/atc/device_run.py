"""Run an .om on samples through pyACL. It stands alone: the toolkit's own interpreter runs it (Python 3.7 and numpy).

    python3 device_run.py [JOB.json]

JOB (``device_job.json``): ``model`` (the .om), ``samples`` (.npz files by input name), ``inputs`` (names in order),
``out`` (a folder), ``result`` (a file), ``form`` (static, batch, image, dims, ranged), ``moving`` (the input whose
steps count), ``output_bytes`` (room per output, for models that do not tell), ``device`` (0), ``times`` (a file
for the seconds of each execution). Paths are relative to
the working folder. Each sample gives ``OUT/000.npz`` with arrays ``0``, ``1``, …; the result says how it went. Exit:
0, or 3 where a call of ACL failed.

Functions and their results: pyACL reference (hicann/runtime docs). Stepped models have one input more, called
``ascend_mbatch_shape_data``, which a setter fills; ranged models are told each shape and report an output size of 0.
"""

from __future__ import annotations

import json
import os
import sys
import time
from importlib import import_module
from typing import Any

STEP_INPUT = "ascend_mbatch_shape_data"
TO_DEVICE, TO_HOST = 1, 2
ROOM = 256 << 20
TYPES = {
    0: "float32",
    1: "float16",
    2: "int8",
    3: "int32",
    4: "uint8",
    6: "int16",
    7: "uint16",
    8: "uint32",
    9: "int64",
    10: "uint64",
    11: "float64",
    12: "bool",
}
"""aclDataType (acl_base.h)."""


WEIGHTS = "weight."
"""What begins the names of an artifact's own weights, which it looks for in a folder ``weight`` beside itself."""


def laid_out(model: str, folder: str) -> str:
    """The path to load: the model itself, or where it has weights a link in ``folder`` with ``weight/`` beside it."""
    place = os.path.dirname(os.path.abspath(model))  # noqa: PTH100, PTH120 -- Python 3.7 in a plain style
    weights = sorted(name for name in os.listdir(place) if name.startswith(WEIGHTS))  # noqa: PTH208
    if not weights:
        return model
    names = {name: os.path.join("weight", name[len(WEIGHTS) :]) for name in weights}  # noqa: PTH118
    names[os.path.basename(model)] = os.path.basename(model)  # noqa: PTH119
    os.makedirs(os.path.join(folder, "weight"), exist_ok=True)  # noqa: PTH103, PTH118
    for name, target in names.items():
        link = os.path.join(folder, target)  # noqa: PTH118
        if os.path.lexists(link):
            os.unlink(link)  # noqa: PTH108
        os.symlink(os.path.join(place, name), link)  # noqa: PTH118, PTH211
    return os.path.join(folder, os.path.basename(model))  # noqa: PTH118, PTH119


class AclError(Exception):
    """A call of ACL failed. ``call`` is its name, ``code`` what it returned."""

    def __init__(self, call: str, code: Any, text: str = "") -> None:
        super().__init__("%s returned %s" % (call, code))  # noqa: UP031 -- Python 3.7 in a plain style
        self.call = call
        self.code = code
        self.text = text


class Session:
    """One loaded model on one device."""

    def __init__(self, job: dict[str, Any]) -> None:
        self.acl: Any = import_module("acl")
        self.np: Any = import_module("numpy")
        self.job = job
        self.device = int(job.get("device", 0))
        self.model = -1
        self.desc: Any = None
        self.own: dict[str, str] = {}
        self.times: list[float] = []

    def check(self, call: str, result: Any) -> Any:
        """The value of a call whose last result is its code. Raises AclError where that is not 0."""
        values = result if isinstance(result, tuple) else (result,)
        if values[-1] != 0:
            tell = getattr(self.acl, "get_recent_err_msg", None)
            raise AclError(call, values[-1], str(tell() or "") if tell is not None else "")
        return values[0]

    def open(self) -> None:
        """Take the device and load the model."""
        acl = self.acl
        self.check("acl.init", acl.init())
        self.check("acl.rt.set_device", acl.rt.set_device(self.device))
        self.check("acl.rt.create_context", acl.rt.create_context(self.device))
        self.model = self.check("acl.mdl.load_from_file", acl.mdl.load_from_file(laid_out(self.job["model"], "loaded")))
        self.desc = acl.mdl.create_desc()
        self.check("acl.mdl.get_desc", acl.mdl.get_desc(self.desc, self.model))

    def close(self) -> None:
        """Give everything back, whatever happened before."""
        acl = self.acl
        if self.desc is not None:
            acl.mdl.destroy_desc(self.desc)
        if self.model != -1:
            acl.mdl.unload(self.model)
        acl.rt.reset_device(self.device)
        acl.finalize()

    def names(self) -> list[str]:
        """The model's inputs in order."""
        mdl = self.acl.mdl
        return [mdl.get_input_name_by_index(self.desc, i) for i in range(mdl.get_num_inputs(self.desc))]

    def run(self, feed: Any) -> list[Any]:
        """The outputs of one sample in order."""
        arrays = self._ordered(feed)
        inputs, outputs = _Dataset(self), _Dataset(self)
        try:
            for index, name in enumerate(self.names()):
                array = arrays.get(name)
                size = self.acl.mdl.get_input_size_by_index(self.desc, index)
                if array is None:
                    inputs.add(size)
                    continue
                self._check_size(name, array.nbytes, size)
                inputs.add(max(size, array.nbytes), array)
            self._tell_shapes(inputs, arrays)
            for index in range(self.acl.mdl.get_num_outputs(self.desc)):
                outputs.add(self.acl.mdl.get_output_size_by_index(self.desc, index) or self._room(index))
            begun = time.perf_counter()
            self.check("acl.mdl.execute", self.acl.mdl.execute(self.model, inputs.handle, outputs.handle))
            self.times.append(time.perf_counter() - begun)
            return [self._output(outputs, index) for index in range(len(outputs.buffers))]
        finally:
            inputs.free()
            outputs.free()

    def _ordered(self, feed: Any) -> dict[str, Any]:
        """The arrays by the model's own names: by name where all agree, else by order; in the model's types."""
        real = [name for name in self.names() if name not in (STEP_INPUT, "ascend_dynamic_aipp_data")]
        wanted = self.job["inputs"]
        if len(real) != len(wanted):
            raise AclError("acl.mdl.get_num_inputs", "%d inputs where the graph has %d" % (len(real), len(wanted)))  # noqa: UP031
        pairs = zip(real, real if set(real) == set(wanted) else wanted)  # noqa: B905 -- Python 3.7
        arrays = {}
        for own, given in pairs:
            index = self.names().index(own)
            kind = self._type(self.acl.mdl.get_input_data_type(self.desc, index))
            array = self.np.asarray(feed[given], order="C")
            if array.dtype != kind and array.dtype.kind == self.np.dtype(kind).kind == "f":
                array = array.astype(kind)
            if array.dtype != kind:
                raise AclError("acl.mdl.get_input_data_type", "%s takes %s, not %s" % (own, kind, array.dtype))  # noqa: UP031
            arrays[own] = array
            self.own[given] = own
        return arrays

    def _type(self, code: int) -> str:
        if code not in TYPES:
            raise AclError("acl data type", "%d has no numpy type" % code)  # noqa: UP031
        return TYPES[code]

    def _check_size(self, name: str, given: int, size: int) -> None:
        fixed = self.job["form"] == "static"
        if size and (given > size or (fixed and given != size)):
            raise AclError("input size", "%s takes %d bytes, and the sample has %d" % (name, size, given))  # noqa: UP031

    def _tell_shapes(self, inputs: _Dataset, arrays: dict[str, Any]) -> None:
        acl, form = self.acl, self.job["form"]
        shapes = [list(arrays[name].shape) for name in self.names() if name in arrays]
        if form == "ranged":
            for index, shape in enumerate(shapes):
                described = acl.create_tensor_desc(0, shape, 0)
                self.check(
                    "acl.mdl.set_dataset_tensor_desc",
                    acl.mdl.set_dataset_tensor_desc(inputs.handle, described, index),
                )
            return
        if form == "static":
            return
        place = self.check("acl.mdl.get_input_index_by_name", acl.mdl.get_input_index_by_name(self.desc, STEP_INPUT))
        if form == "batch":
            batch = arrays[self.own[self.job["moving"]]].shape[0]
            code = acl.mdl.set_dynamic_batch_size(self.model, inputs.handle, place, batch)
        elif form == "image":
            height, width = arrays[self.own[self.job["moving"]]].shape[2:4]
            code = acl.mdl.set_dynamic_hw_size(self.model, inputs.handle, place, height, width)
        else:
            flat = [size for shape in shapes for size in shape]
            dims = {"name": "", "dimCount": len(flat), "dims": flat}
            code = acl.mdl.set_input_dynamic_dims(self.model, inputs.handle, place, dims)
        self.check("acl.mdl.set_dynamic_" + form, code)

    def _room(self, index: int) -> int:
        told = self.job.get("output_bytes", [])
        return int(told[index]) if index < len(told) else ROOM

    def _output(self, outputs: _Dataset, index: int) -> Any:
        acl, np = self.acl, self.np
        if self.job["form"] == "ranged":
            described = acl.mdl.get_dataset_tensor_desc(outputs.handle, index)
            rank = acl.get_tensor_desc_num_dims(described)
            shape = [self.check("dim", acl.get_tensor_desc_dim_v2(described, axis)) for axis in range(rank)]
        else:
            shape = self.check("acl.mdl.get_cur_output_dims", acl.mdl.get_cur_output_dims(self.desc, index))["dims"]
        kind = self._type(acl.mdl.get_output_data_type(self.desc, index))
        array = np.empty(shape, kind)
        pointer, size = outputs.buffers[index][:2]
        if array.nbytes > size:
            raise AclError("output size", "output %d has %d bytes, room was for %d" % (index, array.nbytes, size))  # noqa: UP031
        if array.nbytes:
            code = acl.rt.memcpy(array.ctypes.data, array.nbytes, pointer, array.nbytes, TO_HOST)
            self.check("acl.rt.memcpy", code)
        return array


class _Dataset:
    """Buffers on the device for all inputs, or for all outputs."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.handle = session.acl.mdl.create_dataset()
        self.buffers: list[tuple[Any, int, Any]] = []

    def add(self, size: int, array: Any = None) -> None:
        """Room for one tensor; with an array, that array in it."""
        acl, check = self.session.acl, self.session.check
        pointer = check("acl.rt.malloc", acl.rt.malloc(max(size, 32), 0))
        if array is not None and array.nbytes:
            check("acl.rt.memcpy", acl.rt.memcpy(pointer, size, array.ctypes.data, array.nbytes, TO_DEVICE))
        used = size if array is None or self.session.job["form"] != "ranged" else array.nbytes
        buffer = acl.create_data_buffer(pointer, used)
        self.buffers.append((pointer, size, buffer))
        check("acl.mdl.add_dataset_buffer", acl.mdl.add_dataset_buffer(self.handle, buffer))

    def free(self) -> None:
        """Give the memory back."""
        for pointer, _, buffer in self.buffers:
            self.session.acl.destroy_data_buffer(buffer)
            self.session.acl.rt.free(pointer)
        self.session.acl.mdl.destroy_dataset(self.handle)


def run_job(job: dict[str, Any]) -> dict[str, Any]:
    """Run every sample; what ``result.json`` will say."""
    session = Session(job)
    try:
        session.open()
        for number, sample in enumerate(job["samples"]):
            with session.np.load(sample, allow_pickle=False) as feed:
                outputs = session.run(feed)
            named = {str(index): array for index, array in enumerate(outputs)}
            session.np.savez(os.path.join(job["out"], "%03d.npz" % number), **named)  # noqa: UP031, PTH118
        if job.get("times"):
            with open(job["times"], "w", encoding="utf-8") as stream:
                json.dump(session.times, stream)
        soc = getattr(session.acl, "get_soc_name", str)()
        return {"samples": len(job["samples"]), "device": soc or ""}
    except AclError as error:
        return {"error": {"call": error.call, "code": str(error.code), "text": error.text}}
    finally:
        session.close()


def main() -> int:
    """The command line."""
    with open(sys.argv[1] if len(sys.argv) > 1 else "device_job.json", encoding="utf-8") as stream:
        job = json.load(stream)
    result = run_job(job)
    with open(job["result"], "w", encoding="utf-8") as stream:
        json.dump(result, stream)
    if "error" in result:
        sys.stderr.write("{call} returned {code}\n{text}\n".format(**result["error"]))
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
