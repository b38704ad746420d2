"""A strict stand-in for trtexec, written from the facts on NVIDIA/TensorRT's samples (release/8.4 to release/11.1).

It refuses what trtexec refuses, with its exit code and text. Its engine holds the ONNX model, which it runs with ONNX
Runtime, and rounds the outputs as the asked precision would.

    DOUBLE_TRT_VERSION   the release, 10.15.1
    DOUBLE_TRT_ARCH      the card's compute capability, 8.9
    DOUBLE_TRT_FAULT     wrong, hang, crash, flood, nofile, empty, lie, silent, nokernel, oom
"""

# ruff: noqa: E501
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

VERSION = os.environ.get("DOUBLE_TRT_VERSION", "10.15.1")
RELEASE = tuple(int(part) for part in VERSION.split(".")[:3])
ARCH = os.environ.get("DOUBLE_TRT_ARCH", "8.9")
FAULT = os.environ.get("DOUBLE_TRT_FAULT", "")
ALL = ((8, 4), (99, 0))
SINCE_86 = ((8, 6), (99, 0))
SINCE_9 = ((9, 0), (99, 0))
SINCE_10 = ((10, 0), (99, 0))
SINCE_108 = ((10, 8), (99, 0))
UNTIL_11 = ((8, 4), (11, 0))
SWITCHES = {
    "skipInference": SINCE_86, "buildOnly": ((8, 4), (10, 0)), "fp16": UNTIL_11, "bf16": ((9, 0), (11, 0)),
    "int8": UNTIL_11, "fp8": ((8, 6), (11, 0)), "int4": ((10, 8), (11, 0)), "best": UNTIL_11, "stronglyTyped": SINCE_9,
    "noTF32": ALL, "explicitBatch": ((8, 4), (10, 0)), "errorOnTimingCacheMiss": SINCE_9, "noCompilationCache": SINCE_9,
    "versionCompatible": SINCE_86, "vc": SINCE_86, "excludeLeanRuntime": SINCE_86, "refit": ALL, "stripWeights": SINCE_10,
    "stripAllWeights": SINCE_108, "allowWeightStreaming": SINCE_10, "getPlanVersionOnly": SINCE_9, "dumpOutput": ALL,
    "dumpRawBindingsToFile": SINCE_86, "dumpLayerInfo": ALL, "dumpProfile": ALL, "verbose": ALL, "allowGPUFallback": ALL,
    "monitorMemory": SINCE_108, "asyncFileReader": SINCE_108, "distributiveIndependence": ((10, 12), (99, 0)),
    "markUnfusedTensorsAsDebugTensors": ((10, 12), (99, 0)), "uint8AsymmetricQuantizationDLA": ((10, 12), (99, 0)),
    "includeDataTransfers": ((11, 0), (99, 0)), "noCudaGraph": ((11, 0), (99, 0)), "noSpinWait": ((11, 0), (99, 0)),
    "restricted": UNTIL_11, "help": ALL, "safe": ALL,
}  # fmt: skip
VALUES = {
    "onnx": ALL, "saveEngine": ALL, "loadEngine": ALL, "calib": UNTIL_11, "precisionConstraints": UNTIL_11,
    "layerPrecisions": UNTIL_11, "layerOutputTypes": UNTIL_11, "minShapes": ALL, "optShapes": ALL, "maxShapes": ALL,
    "shapes": ALL, "profile": SINCE_9, "useProfile": SINCE_9, "inputIOFormats": ALL, "outputIOFormats": ALL,
    "workspace": ((8, 4), (10, 0)), "memPoolSize": ALL, "timingCacheFile": ALL, "hardwareCompatibilityLevel": SINCE_86,
    "runtimePlatform": SINCE_108, "builderOptimizationLevel": SINCE_86, "weightStreamingBudget": SINCE_10,
    "staticPlugins": SINCE_86, "dynamicPlugins": SINCE_86, "setPluginsToSerialize": SINCE_86, "plugins": ALL,
    "useRuntime": SINCE_86, "leanDLLPath": SINCE_86, "loadInputs": ALL, "exportOutput": ALL, "iterations": ALL,
    "duration": ALL, "warmUp": ALL, "avgRuns": ALL, "exportTimes": ALL, "exportLayerInfo": ALL, "exportProfile": ALL,
    "profilingVerbosity": ALL, "device": ALL, "useDLACore": ALL, "l2LimitForTiling": SINCE_108, "maxTactics": SINCE_108,
    "tilingOptimizationLevel": SINCE_108, "decomposableAttentions": ((10, 16), (99, 0)),
}  # fmt: skip
CHOICES = {
    "precisionConstraints": {"none", "obey", "prefer"},
    "hardwareCompatibilityLevel": {"none", "ampere+", "sameComputeCapability"},
    "useRuntime": {"full", "lean", "dispatch"},
}


def out(severity, text):
    stream = sys.stderr if severity in "WEF" else sys.stdout
    stream.write(f"[12/01/2026-10:00:00] [{severity}] {text}\n")
    stream.flush()


def bracket():
    major, minor, patch = RELEASE
    number = major * 10000 + minor * 100 + patch if major >= 10 else major * 1000 + minor * 100 + patch
    return f"TensorRT.trtexec [TensorRT v{number}]" + (" [b29]" if RELEASE >= (10, 5) else "")


def close(word, code):
    sys.stdout.write(f"&&&& {word} {bracket()} # {' '.join(sys.argv)}\n")
    sys.stdout.flush()
    sys.exit(code)


class Refused(Exception):
    pass


def error(text):
    out("E", text)
    raise Refused


def there(span):
    return span[0] <= RELEASE[:2] < span[1]


def usage():
    known = [name for name, span in {**SWITCHES, **VALUES}.items() if there(span)]
    sys.stdout.write("=== Model Options ===\n" + "".join(f"  --{name}\n" for name in sorted(known)))
    sys.stdout.flush()


def parse(words):
    options = {}
    unknown = []
    for word in words:
        name, sign, value = word.removeprefix("--").partition("=")
        table = VALUES if sign else SWITCHES
        if not word.startswith("--") or name not in table or not there(table[name]):
            unknown.append(word if not word.startswith("--") else f"--{name}")
        elif sign and not value:
            error(f"Model missing or format not recognized: empty value of --{name}")
        elif name in options and name not in ("profile",):
            error(f"Multiple --{name} without --profile")
        elif name in CHOICES and value not in CHOICES[name]:
            error(f"Unknown value of --{name}: {value}")
        else:
            options[name] = value if sign else True
    if unknown:
        usage()
        error(f"Unknown option: {' '.join(unknown)}")
    return options


def named(text):
    """name:what,name:what; a name may stand in single quotes."""
    found = re.findall(r"(?:'([^']+)'|([^,:']+)):([^,]+)(?:,|$)", text)
    if sum(len(a or b) + len(c) + 1 + 2 * bool(a) for a, b, c in found) + max(0, len(found) - 1) != len(text):
        error(f"Model missing or format not recognized: {text}")
    return {a or b: c for a, b, c in found}


def shapes(text):
    return {k: [] if v == "scalar" else [int(size) for size in v.split("x")] for k, v in named(text).items()}


def check_options(options):
    if "stronglyTyped" in options:
        weak = {"fp16", "bf16", "int8", "fp8", "int4", "best", "precisionConstraints", "layerPrecisions"} & set(options)
        if weak:
            error(f"Invalid usage, --stronglyTyped can't be mixed with {sorted(weak)}")
    if "excludeLeanRuntime" in options and not {"versionCompatible", "vc"} & set(options):
        error("--excludeLeanRuntime needs --versionCompatible")
    if "layerPrecisions" in options and options.get("precisionConstraints", "none") == "none":
        out("W", "--layerPrecisions has no effect without --precisionConstraints")
    if "loadEngine" in options and "saveEngine" in options:
        error("Incompatible load and save engine options selected")
    if "onnx" not in options and "loadEngine" not in options:
        error("Model missing or format not recognized")


def dims_of(value):
    return [d.dim_value if d.HasField("dim_value") else -1 for d in value.type.tensor_type.shape.dim]


def read_model(path):
    import onnx

    if not pathlib.Path(path).is_file():
        error(f"Could not open file {path}")
    try:
        model = onnx.load(path)
    except Exception:
        error(f"Failed to parse ONNX model from file: {path}")
    for number, node in enumerate(model.graph.node):
        if node.domain not in ("", "ai.onnx"):
            out("W", f"[TRT] onnx2trt: No importer registered for op: {node.op_type}. Attempting to import as plugin.")
            out(
                "E",
                f'[TRT] ModelImporter.cpp:771: While parsing node number {number} [{node.op_type} -> "{node.output[0]}"]:',
            )
            out("E", "[TRT] Plugin not found, are the plugin name, version, and namespace correct?")
            out("E", "Failed to parse onnx file")
            error("Parsing model failed")
    return model


def profile_of(model, options):
    weights = {tensor.name for tensor in model.graph.initializer}
    inputs = {value.name: dims_of(value) for value in model.graph.input if value.name not in weights}
    dynamic = {name for name, dims in inputs.items() if -1 in dims}
    given = {place: shapes(options[f"{place}Shapes"]) for place in ("min", "opt", "max") if f"{place}Shapes" in options}
    for asked in given.values():
        for name in asked:
            if name not in inputs:
                error(
                    f'Cannot find input tensor with name "{name}" in the network inputs! Please make sure the input '
                    "tensor names are correct."
                )
    if given and not dynamic:
        error(
            "Static model does not take explicit shapes since the shape of inference tensors will be determined by the "
            "model itself"
        )
    profile = {}
    for name in inputs:
        if name not in dynamic:
            continue
        three = [given.get(place, {}).get(name) for place in ("min", "opt", "max")]
        if not any(three):
            fixed = [max(size, 1) for size in inputs[name]]
            out("W", f"Dynamic dimensions required for input: {name}, but no shapes were provided. Automatically "
                     f"overriding shape to: {'x'.join(map(str, fixed))}")  # fmt: skip
            three = [fixed] * 3
        if None in three or any(len(shape) != len(inputs[name]) for shape in three):
            error("Required optimization profile is invalid")
        if any(not low <= usual <= high for low, usual, high in zip(*three, strict=True)):
            error("Required optimization profile is invalid")
        if any(
            size not in (-1, low) or (size != -1 and low != high)
            for size, low, high in zip(inputs[name], three[0], three[2], strict=True)
        ):
            error("Required optimization profile is invalid")
        profile[name] = [three[0], three[2]]
    return profile


def build(options):
    out("I", "Start parsing network model.")
    model = read_model(options["onnx"])
    out("I", "Finished parsing network model. Parse time: 0.1")
    names = {node.name for node in model.graph.node}
    for flag in ("layerPrecisions", "layerOutputTypes"):
        if flag in options and not set(named(options[flag])) <= names:
            error(f"Invalid layer names found in --{flag} flag: {sorted(set(named(options[flag])) - names)}")
    profile = profile_of(model, options)
    if FAULT == "nokernel":
        node = model.graph.node[0].name
        out(
            "E",
            f"Error[10]: IBuilder::buildSerializedNetwork: Error Code 10: Internal Error (Could not find any implementation for node {node}.)",
        )
        out("E", "Engine could not be created from network")
        out("E", "Building engine failed")
        error("Engine set up failed")
    if FAULT == "oom":
        out(
            "W",
            "[TRT] Requested amount of GPU memory (8589934592 bytes) could not be allocated. There may not be enough free memory for allocation to succeed.",
        )
        error("Engine set up failed")
    quantized = any(node.op_type == "QuantizeLinear" for node in model.graph.node)
    precision = next((name for name in ("int8", "fp8", "bf16", "fp16") if name in options), "fp32")
    if "int8" in options and not quantized:
        if "calib" in options:
            if not pathlib.Path(options["calib"]).is_file():
                error(f"Could not open file {options['calib']}")
        else:
            out(
                "W",
                "Calibrator is not being used. Users must provide dynamic range for all tensors that are not Int32 or Bool.",
            )
            precision = "garbage"
    save(model, options, precision, profile)


def save(model, options, precision, profile):
    import onnx

    facts = {
        "version": VERSION, "arch": ARCH, "precision": precision, "profile": profile,
        "compatible": "versionCompatible" in options or "vc" in options,
        "hardware": options.get("hardwareCompatibilityLevel", "none"),
    }  # fmt: skip
    head = json.dumps(facts).encode()
    plan = (
        b"ftrt" + bytes(20) + bytes([*RELEASE, 0]) + len(head).to_bytes(4, "little") + head + model.SerializeToString()
    )
    assert onnx.__version__
    out("I", f"Created engine with size: {len(plan) / 1048576:.4f} MiB")
    out("I", "Engine built in 0.2 sec.")
    if FAULT == "nofile" or "saveEngine" not in options:
        return
    try:
        with open(options["saveEngine"], "wb") as stream:
            stream.write(b"" if FAULT == "empty" else plan)
    except OSError:
        error("Saving engine to file failed.")


def load(options):
    path = pathlib.Path(options["loadEngine"])
    if not path.is_file():
        error(f"Could not open file {path}")
    data = path.read_bytes()
    if data[:4] != b"ftrt" or len(data) < 32:
        out("E", "[TRT] Error[1]: [stdArchiveReader.cpp] Error Code 1: Serialization (Magic tag does not match)")
        error("Failed to create engine from model or file.")
    size = int.from_bytes(data[28:32], "little")
    facts = json.loads(data[32 : 32 + size])
    theirs = tuple(int(part) for part in facts["version"].split(".")[:3])
    newer = facts["compatible"] and theirs[0] == RELEASE[0] and theirs <= RELEASE
    if theirs != RELEASE and not newer:
        out(
            "E",
            f"[TRT] Error[6]: The engine plan file is not compatible with this version of TensorRT, expecting library version {VERSION} got {facts['version']}, please rebuild.",
        )
        error("Engine set up failed")
    if facts["arch"] != ARCH and facts["hardware"] == "none":
        out(
            "E",
            f"[TRT] Error[6]: The engine plan file is generated on an incompatible device, got compute {facts['arch']}, expecting compute {ARCH}, please rebuild.",
        )
        error("Engine set up failed")
    return facts, data[32 + size :]


def infer(options):
    import numpy as np
    import onnxruntime

    facts, model = load(options)
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted = {value.name: value for value in session.get_inputs()}
    asked = shapes(options["shapes"]) if "shapes" in options else {}
    files = named(options.get("loadInputs", ""))
    for name in [*asked, *files]:
        if name not in wanted:
            error(
                f'Cannot find input tensor with name "{name}" in the engine bindings! Please make sure the input tensor names are correct.'
            )
    feeds = {}
    for name, value in wanted.items():
        shape = [size if isinstance(size, int) else -1 for size in value.shape]
        if name in facts["profile"]:
            low, high = facts["profile"][name]
            shape = asked.get(name, low)
            if any(not a <= size <= b for a, size, b in zip(low, shape, high, strict=True)):
                error(f"Shape {shape} of {name} is outside of the optimization profile")
        elif name in asked and asked[name] != shape:
            error(
                f"The engine was built with static shapes for input tensor {name} but the provided shapes do not match the static shapes!"
            )
        dtype = np.dtype({"tensor(float)": "f4", "tensor(float16)": "f2", "tensor(double)": "f8", "tensor(int64)": "i8",
                          "tensor(int32)": "i4", "tensor(int8)": "i1", "tensor(uint8)": "u1", "tensor(bool)": "?"}[value.type])  # fmt: skip
        feeds[name] = read_input(files.get(name), name, shape, dtype)
    outputs = [rounded(array, facts["precision"]) for array in session.run(None, feeds)]
    if FAULT == "wrong":
        outputs = [array * 2 + 1 if array.dtype.kind == "f" else array for array in outputs]
    if "exportOutput" in options and FAULT != "nofile":
        export(options["exportOutput"], [value.name for value in session.get_outputs()], outputs)
    out("I", "Throughput: 812.4 qps")
    out(
        "I",
        "Latency: min = 1.1 ms, max = 1.9 ms, mean = 1.23 ms, median = 1.2 ms, percentile(90%) = 1.3 ms, percentile(95%)"
        " = 1.4 ms, percentile(99%) = 1.5 ms",
    )


def read_input(path, name, shape, dtype):
    import numpy as np

    if path is None:
        return np.random.default_rng(1).random(shape).astype(dtype)
    if not pathlib.Path(path).is_file():
        error(f"Cannot open file {path}!")
    data = pathlib.Path(path).read_bytes()
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if RELEASE < (9, 0) and dtype == np.int64:
        # INT64 inputs are INT32 bindings; a file of double the size is let through.
        size //= 2
        if len(data) == 2 * size:
            return np.frombuffer(data, dtype).reshape(shape)
        dtype = np.dtype("i4")
    if len(data) != size and len(data) != 2 * size:
        error(
            f"Unexpected file size for input file: {path}. Note: Input binding size is: {size} bytes but the file size is {len(data)} bytes. Double check the size and datatype of the provided data."
        )
    return np.frombuffer(data[:size], dtype).reshape(shape)


def rounded(array, precision):
    import ml_dtypes
    import numpy as np

    if array.dtype.kind != "f":
        return array
    if precision == "garbage":
        return np.zeros_like(array) + 7
    kinds = {"fp16": np.float16, "int8": np.float16, "bf16": ml_dtypes.bfloat16}
    with np.errstate(over="ignore"):
        return array.astype(kinds[precision]).astype(array.dtype) if precision in kinds else array


def export(path, names, outputs):
    parts = []
    for name, array in zip(names, outputs, strict=True):
        values = ", ".join(
            f"{float(value):g}" if array.dtype.kind == "f" else str(int(value)) for value in array.ravel()
        )
        dims = "x".join(map(str, array.shape))
        parts.append(f'{{ "name" : "{name}"\n  , "dimensions" : "{dims}"\n  , "values" : [ {values} ]\n  }}')
    with open(path, "w") as stream:
        stream.write("[\n  " + "\n  , ".join(parts) + "\n]\n")


def early_faults():
    if FAULT == "hang":
        subprocess.Popen(["sleep", "600"])
        time.sleep(600)
    if FAULT == "crash":
        out("I", "Start parsing network model.")
        os.kill(os.getpid(), signal.SIGSEGV)
    if FAULT == "silent":
        sys.exit(0)
    if FAULT == "flood":
        for _ in range(200):
            sys.stdout.write("[V] tactic timing line that says little\n" * 5000)


def main():
    words = sys.argv[1:]
    sys.stdout.write(f"&&&& RUNNING {bracket()} # {' '.join(sys.argv)}\n")
    if not words or "--help" in words:
        usage()
        sys.exit(0)
    out("I", f"TensorRT version: {VERSION}")
    try:
        options = parse(words)
        check_options(options)
        building = "onnx" in options
        if building or FAULT not in ("hang", "crash"):
            early_faults() if building else None
        if FAULT == "lie":
            out("E", "Engine set up failed")
            close("FAILED", 0)
        if building:
            build(options)
        else:
            infer(options)
    except Refused:
        close("FAILED", 1)
    close("PASSED", 0)


if __name__ == "__main__":
    main()
