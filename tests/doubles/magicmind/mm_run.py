"""A strict stand-in for ``$NEUWARE_HOME/bin/mm_run``: the flags, files and lines of the SDK's sample."""

import json
import os
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120

import magicmind.python.runtime as mm

FLAGS = {"magicmind_model", "input_dims", "batch_size", "run_config", "input_files", "output_path", "plugin", "devices",
         "threads", "bind_cluster", "warmup", "duration", "iterations", "disable_data_copy", "host_async",
         "buffer_depth", "infer_depth", "kernel_capture", "trace_path", "debug_path", "perf_path", "trace_pmu",
         "trace_time", "avg_runs"}  # fmt: skip


def parse(words):
    values, name = {}, ""
    for word in words:
        if word.startswith("--"):
            name = word[2:]
            if name not in FLAGS:
                stop(f"Unknown command line arg: {word}")
            values[name] = []
        else:
            values.setdefault(name, []).append(word)
    if not values.get("magicmind_model"):
        stop("Command line arg: magicmind_model is required but not given")
    return values


def stop(text, code=134):
    print(text, flush=True)
    sys.exit(code)


def main():
    values = parse(sys.argv[1:])
    model = mm.Model()
    status = model.deserialize_from_file(values["magicmind_model"][0])
    if not status.ok():
        stop(f"DeserializeFromFile failed: {status}")
    shapes = [dims.GetDims() for dims in model.get_input_dimensions()]
    if any(-1 in sizes for sizes in shapes) and "input_dims" not in values:
        stop("input_dims is needed for a model with mutable shapes")
    print(f"MagicMind: {mm.Model.__module__ and os.environ.get('MAGICMIND_DOUBLE_VERSION', '1.7.0')}")
    with mm.System() as system:
        if not system.device_count():
            stop("dev_count must be large than 0")
        device = mm.Device()
        device.active()
        engine = model.create_i_engine()
        if engine is None:
            stop("CreateIEngine failed")
        context, queue = engine.create_i_context(), device.create_queue()
        inputs = context.create_inputs()
        if len(values["input_files"]) != len(inputs):
            stop("Mismatch file num and input num")
        for path, held in zip(values["input_files"], inputs, strict=True):
            raw = Path(path).read_bytes()
            wanted = int(np.prod(held.shape)) * np.dtype(held.kind.value).itemsize
            if len(raw) != wanted:
                stop(f"Request for {wanted} size of data but got {len(raw)}")
            held.from_numpy(np.frombuffer(raw, held.kind.value).reshape(held.shape))
            held.to(device)
        outputs = []
        for status in (context.enqueue(inputs, outputs, queue), queue.sync()):
            if not status.ok():
                stop(str(status))
        for number, held in enumerate(outputs):
            (Path(values["output_path"][0]) / f"output{number}").write_bytes(held.asnumpy().tobytes())
    print("=================== Performance Summary")
    print(f"Total iterations: {json.dumps(int(values.get('iterations', ['100'])[0]))}")
    print("Throughput (qps): 100.5 with total batch sizes: 1 and 100.5 iterations/second")
    for part, mean in (("H2D", 0.1), ("MLU Compute (Launch jobs)", 9.7), ("Total Latency", 9.9)):
        print(f"{part} Summary{'(H2D + Compute + D2H)' if part.startswith('Total') else ''}:")
        print(
            f"Latency(host clock, ms): min: {mean - 0.05} max: {mean + 2} mean: {mean} median: {mean - 0.01}"
            f" percentile: (90%) {mean + 0.1} (95%) {mean + 0.2} (99%) {mean + 1}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
