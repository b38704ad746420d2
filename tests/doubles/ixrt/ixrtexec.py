# ruff: noqa: E501, PTH110, PTH113, TRY002
"""A strict stand-in for ixrtexec, written from the facts on Deep-Spark/iluvatar-corex-ixrt's ixrt/cli.

DOUBLE_IXRT_EDITION   2024-09, 2025-06, 2025-11 or 2025-12 (the default)
DOUBLE_IXRT_FAULT     wrong, hang, crash, nofile, build
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time

EDITION = os.environ.get("DOUBLE_IXRT_EDITION", "2025-12")
FAULT = os.environ.get("DOUBLE_IXRT_FAULT", "")


def args_parser():
    parser = argparse.ArgumentParser(prog="ixrtexec")
    for name in (
        "onnx",
        "shapes",
        "input_types",
        "output_types",
        "quant_file",
        "save_engine",
        "load_engine",
        "dump_graph",
        "export_profiler",
    ):
        parser.add_argument(f"--{name}", type=str, default=None)
    for name in (
        "min_shape",
        "opt_shape",
        "max_shape",
        "load_inputs",
        "ort_onnx",
        "inject_tensors",
        "save_verify_data",
    ):
        parser.add_argument(f"--{name}", type=str, default="")
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--warmUp", type=int, default=10)
    if EDITION >= "2025-12":
        parser.add_argument("--precision", type=str, nargs="+", default=["fp32"])
    else:
        choices = ["int8", "fp16"] + ["fp32"] * (EDITION >= "2025-06") + ["bf16"] * (EDITION >= "2025-11")
        parser.add_argument(
            "--precision", type=str, choices=choices, default="fp32" if EDITION >= "2025-11" else "fp16"
        )
    parser.add_argument("--support", type=str, default="", choices=["pipe", "pretty"])
    parser.add_argument(
        "--log_level", type=str, choices=["verbose", "info", "warning", "error", "internal_error"], default="warning"
    )
    for name in ("run_profiler", "verify_acc", "ort_cpu", "only_verify_outputs"):
        parser.add_argument(f"--{name}", action="store_true")
    for name in ("cosine_sim", "diff_max", "diff_sum", "diff_rel_avg"):
        parser.add_argument(f"--{name}", type=float, default=-1)
    parser.add_argument("--plugins", type=str, nargs="+", default=[])
    parser.add_argument("--hooks", type=str, nargs="+", default=[])
    if EDITION >= "2025-06":
        parser.add_argument("--timingCacheFile", type=str, default=None)
        parser.add_argument("--builderOptimizationLevel", type=int, default=3)
        parser.add_argument("--watch", type=str, nargs="+")
    if EDITION >= "2025-12":
        parser.add_argument("--strongly_typed", action="store_true")
        parser.add_argument("--gpus", type=int, nargs="+", default=None)
    return parser.parse_args()


def shapes_of(text):
    found = {}
    for part in text.split(","):
        name, _, sizes = part.rpartition(":")
        found[name] = [int(size) for size in sizes.split("x")]
    return found


def check_inputs(config, model):
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {}
    for value in model.graph.input:
        if value.name not in weights:
            dims = value.type.tensor_type.shape.dim
            inputs[value.name] = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in dims]
            if not inputs[value.name]:
                raise ValueError(f"input shape not provided : {value.name}")
    dynamic = {name for name, dims in inputs.items() if -1 in dims}
    three = config.min_shape and config.opt_shape and config.max_shape
    if not dynamic:
        assert not three, (
            "Static model does not take explicit shapes since the shape of inference tensors will be determined by the model itself, please do not pass --min_shape,--opt_shape,--max_shape."
        )
        return {}
    assert three, "If you use dynamic shape input, please specify all --min_shape,--opt_shape,--max_shape"
    profile = {}
    for text in (config.min_shape, config.opt_shape, config.max_shape):
        for name, sizes in shapes_of(text).items():
            assert name in inputs, (
                f"Cannot find input tensor with name '{name}' in the network inputs! Please make sure the input tensor names are correct."
            )
            assert len(inputs[name]) == len(sizes), (
                f"The rank of '{name}' is {len(inputs[name])}, please make sure the input tensor shape is correct."
            )
            profile.setdefault(name, []).append(sizes)
    for name in dynamic:
        assert len(profile.get(name, [])) == 3, (
            f"{name} is dynamic shape input, please specify all --min_shape,--opt_shape,--max_shape"
        )
    return profile


def build(config):
    import onnx

    print(
        "It is highly recommended to use onnxsim to simplify the model before converting the ONNX model with ixrtexec."
    )
    model = onnx.load(config.onnx)
    profile = check_inputs(config, model)
    precisions = config.precision if isinstance(config.precision, list) else [config.precision]
    for precision in precisions:
        if precision not in ["fp16", "bf16", "int8", "fp32"]:
            raise ValueError(f"unsupported precision {precision}")
    if "int8" in precisions:
        if config.quant_file is not None:
            if not os.path.isfile(config.quant_file):
                raise ValueError(f" no such file path {config.quant_file}")
        elif not any(node.op_type in ("QuantizeLinear", "DequantizeLinear") for node in model.graph.node):
            raise ValueError(
                "int8 precision requires a pre-quantized QDQ ONNX model or a quantization parameter file (--quant_file). Please provide a QDQ model or a quant params file."
            )
    for node in model.graph.node:
        if node.domain not in ("", "ai.onnx"):
            sys.stderr.write(
                f"[ERROR] No importer registered for op: {node.op_type}. Attempting to import as plugin.\n"
            )
            raise AssertionError("Failed to parse model, please go back to check error message!")
    if FAULT == "build":
        raise Exception(
            "Failed to build IxRT engine, please use -v to activate verbose logger and then check error messages!"
        )
    typed = getattr(config, "strongly_typed", False)
    facts = {"precision": "fp32" if typed else precisions[0], "profile": profile, "fault": FAULT}
    head = json.dumps(facts).encode()
    if config.save_engine is not None and FAULT != "nofile":
        with open(config.save_engine, "wb") as stream:
            stream.write(b"IXRT" + len(head).to_bytes(4, "little") + head + model.SerializeToString())


def main():
    config = args_parser()
    if FAULT == "hang":
        subprocess.Popen(["sleep", "600"])
        time.sleep(600)
    if FAULT == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if config.load_engine:
        if not os.path.exists(config.load_engine):
            raise FileNotFoundError(config.load_engine)
    else:
        build(config)
    print("Input inference shape: x=1")
    print("fps: 10.0 with batchsize 1")
    print("Throughput: 10.0 qps")


if __name__ == "__main__":
    main()
