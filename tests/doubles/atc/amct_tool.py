"""A strict stand-in for ``amct_onnx``: calibrates on .bin files and leaves a deploy model with AscendQuant nodes.

AMCT_DOUBLE_FAULT: fail (an error of a layer), no_file (it says that it succeeded), hang. What it takes is of the
manual: one folder for each input, files in the order of their names, each of exactly one ``--input_shape``.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from pathlib import Path
from typing import NoReturn

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

FAULT = os.environ.get("AMCT_DOUBLE_FAULT", "")
NEWEST_OPSET = int(os.environ.get("AMCT_DOUBLE_OPSET", "18"))
NEWEST_IR = 8
KINDS = ("Conv", "MatMul", "Gemm")


def fail(text: str) -> NoReturn:
    sys.stdout.write(f"ERROR - [AMCT]:[AMCT]: {text}\n")
    sys.exit(1)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser("amct_onnx", allow_abbrev=False)
    commands = parser.add_subparsers(required=True)
    calibration = commands.add_parser("calibration", allow_abbrev=False)
    for name in ("model", "save_path"):
        calibration.add_argument(f"--{name}", required=True)
    for name in ("input_shape", "data_dir", "data_types", "evaluator", "calibration_config"):
        calibration.add_argument(f"--{name}")
    calibration.add_argument("--batch_num", type=int)
    return parser.parse_args()


def configured(given: argparse.Namespace) -> tuple[int, list[str]]:
    """How many batches, and the layers left out."""
    if given.calibration_config is None:
        return given.batch_num or 1, []
    if given.batch_num is not None:
        fail("batch_num and calibration_config can't be set at the same time")
    count, skipped = 1, []
    for line in Path(given.calibration_config).read_text().splitlines():
        match = re.fullmatch(
            r'(batch_num: (?P<count>\d+)|skip_layers: "(?P<layer>[^"]+)"|activation_offset: \w+)', line
        )
        if match is None:
            fail(f"can't parse {line!r} of calibration_config")
        count = int(match["count"] or count)
        skipped += [match["layer"]] if match["layer"] else []
    return count, skipped


def batches(given: argparse.Namespace, model: onnx.ModelProto, count: int) -> list[dict[str, np.ndarray]]:
    fixed = {tensor.name for tensor in model.graph.initializer}
    names = [value.name for value in model.graph.input if value.name not in fixed]
    if None in (given.input_shape, given.data_dir, given.data_types):
        fail("input_shape, data_dir and data_types are needed")
    shapes = {}
    for part in given.input_shape.split(";"):
        name, _, dims = part.rpartition(":")
        shapes[name] = [int(size) for size in dims.split(",") if size]
    folders, types = given.data_dir.split(";"), given.data_types.split(";")
    if list(shapes) != names or len(folders) != len(names) or len(types) != len(names):
        fail(f"the model has the inputs {names}")
    read: list[dict[str, np.ndarray]] = [{} for _ in range(count)]
    for name, folder, kind in zip(names, folders, types, strict=True):
        files = sorted(path for path in Path(folder).iterdir() if path.suffix == ".bin")
        if len(files) < count:
            fail(f"{folder} has {len(files)} files, batch_num is {count}")
        for place in range(count):
            array = np.fromfile(files[place], dtype=kind)
            if array.size != np.prod(shapes[name], dtype=int):
                fail(f"{files[place]} does not have the shape {shapes[name]}")
            read[place][name] = array.reshape(shapes[name])
    return read


def ranges(model: onnx.ModelProto, targets: list[str], feeds: list[dict[str, np.ndarray]]) -> dict[str, float]:
    """The largest magnitude of each value."""
    wider = onnx.ModelProto()
    wider.CopyFrom(model)
    have = {value.name for value in (*wider.graph.output, *wider.graph.input)}
    wider.graph.output.extend(onnx.ValueInfoProto(name=name) for name in targets if name not in have)
    session = onnxruntime.InferenceSession(wider.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {value.name for value in model.graph.input}
    inner = [name for name in targets if name not in given]
    found: dict[str, float] = dict.fromkeys(targets, 0.0)
    for feed in feeds:
        values = {**feed, **dict(zip(inner, session.run(inner, feed), strict=True))} if inner else feed
        for name in targets:
            found[name] = max(found[name], float(np.abs(values[name]).max()))
    return found


def deploy(model: onnx.ModelProto, skipped: list[str], feeds: list[dict[str, np.ndarray]]) -> onnx.ModelProto:
    layers = [node for node in model.graph.node if node.op_type in KINDS and node.name not in skipped]
    if missing := set(skipped) - {node.name for node in model.graph.node}:
        fail(f"skip_layers {sorted(missing)} are not in the graph")
    if not layers:
        fail("no layer can be quantized")
    largest = ranges(model, sorted({node.input[0] for node in layers}), feeds)
    nodes = []
    for node in model.graph.node:
        if node in layers:
            scale, value = largest[node.input[0]] / 127 or 1.0, node.input[0]
            quantized = f"{node.name}_quant"
            nodes.append(
                helper.make_node(
                    "AscendQuant",
                    [value],
                    [f"{quantized}_y"],
                    name=quantized,
                    scale=1 / scale,
                    offset=0.0,
                    quant_bits=8,
                )
            )
            nodes.append(
                helper.make_node(
                    "AscendDequant", [f"{quantized}_y"], [f"{quantized}_x"], name=f"{node.name}_dequant", scale=scale
                )
            )
            node.input[0] = f"{quantized}_x"
        nodes.append(node)
    made = onnx.ModelProto()
    made.CopyFrom(model)
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    return made


def main() -> int:
    given = parse()
    if FAULT == "hang":
        time.sleep(600)
    model = onnx.load(given.model)
    opset = next(entry.version for entry in model.opset_import if not entry.domain)
    if opset > NEWEST_OPSET or model.ir_version > NEWEST_IR:
        fail(f"opset {opset} or IR version {model.ir_version} is not supported by this onnx")
    count, skipped = configured(given)
    feeds = batches(given, model, count)
    if FAULT == "fail":
        sys.stdout.write("ERROR - [AMCT]:[AMCT]: layer conv run WeightFakeQuantArq failed\n")
        return 1
    Path("amct_log").mkdir(exist_ok=True)
    Path("amct_log/amct_onnx.log").write_text("calibrated\n")
    Path(given.save_path).parent.mkdir(parents=True, exist_ok=True)
    made = deploy(model, skipped, feeds)
    if FAULT != "no_file":
        onnx.save(made, f"{given.save_path}_deploy_model.onnx")
    onnx.save(model, f"{given.save_path}_fake_quant_model.onnx")
    Path(f"{given.save_path}_quant.json").write_text("{}")
    sys.stdout.write(f"INFO - [AMCT]:[Utils]: The model file is saved in {given.save_path}_deploy_model.onnx\n")
    return 0


def runnable(model: onnx.ModelProto) -> onnx.ModelProto:
    """A deploy model in operators that ONNX Runtime has: what a card of the stand-in computes."""
    for node in model.graph.node:
        if node.op_type not in ("AscendQuant", "AscendDequant"):
            continue
        scale = next(item.f for item in node.attribute if item.name == "scale")
        quant = node.op_type == "AscendQuant"
        names = [f"{node.name}_{part}" for part in ("scale", "zero")]
        step = np.float32(1 / scale if quant else scale)
        for name, array in zip(names, (step, np.int8(0)), strict=True):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))
        node.op_type = "QuantizeLinear" if quant else "DequantizeLinear"
        node.input.extend(names)
        del node.attribute[:]
    return model


if __name__ == "__main__":
    sys.exit(main())
