"""The builder: what it refuses, the file that it writes, and its faults."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from magicmind._double.base import FLOATS, OK, WIDE, Dims, fault, internal, invalid, log_error, setting, version

MAGIC = b"\x7fMM-double\n"


class Builder:
    def build_model(self, name, network, config=None):
        from magicmind._double.config import BuilderConfig
        from magicmind._double.runtime import Model

        config = config or BuilderConfig()
        misbehave(config)
        if problem := refused(network, config):
            log_error("mm_builder.cc:301", problem)
            return None
        return Model.of(header_of(name, network, config), network.proto.SerializeToString())


def misbehave(config):
    fusing = config.at("debug_config", "fusion_enable", default=True)
    if fault() == "hang":
        child = subprocess.Popen(["sleep", "600"])
        if setting("PIDS"):
            Path(setting("PIDS")).write_text(f"{os.getpid()} {os.getppid()} {child.pid}")
        time.sleep(600)
    elif fault() == "crash" or (fault() == "fusion-crash" and fusing):
        log_error("mm_builder.cc:12", "Check failed: index < size")
        os.abort()
    elif fault() == "flood":
        for _ in range(1200):
            sys.stderr.write("magicmind: fusing\n" * 1000)
        os._exit(1)
    elif fault() == "exit0":
        log_error("mm_builder.cc:77", "out of scratch memory")
        sys.stderr.flush()
        os._exit(0)


def refused(network, config):
    """Why no model is built; empty: it is."""
    if network.proto is None:
        return "the network is empty"
    if fault() == "fusion" and config.at("debug_config", "fusion_enable", default=True):
        return "fusion pass failed"
    if network.wide() and not config.at("opt_config", "type64to32_conversion", default=False):
        return f"data type INT64 of {network.wide()[0]} is not supported"
    if config.mode.startswith("qint") and network.ranges is None and "custom_ranges" not in config.values:
        return f"no range for {network.inputs[0].name}: precision_mode {config.mode} needs a calibration"
    mutable = config.at("graph_shape_mutable", default=True)
    if not mutable and any(Dims(tensor.sizes).GetElementCount() < 0 for tensor in network.inputs):
        return "graph_shape_mutable is false, and an input has -1 in its shape"
    return dim_problem(network, config, mutable) or layout_problem(network, config)


def dim_problem(network, config, mutable):
    wanted = config.at("dim_range")
    if wanted is None:
        return ""
    if not mutable:
        return "dim_range with graph_shape_mutable false"
    for place, tensor in enumerate(network.inputs):
        one = wanted.get(str(place))
        if one is None:
            return f"dim_range of input {place} is missing"
        if len(one["min"]) != max(1, len(tensor.sizes)):
            return f"dim_range of input {place} has another rank than {tensor.name}"
        spans = zip(tensor.sizes, one["min"], one["max"], strict=False)
        if any(size >= 0 and not low <= size <= high for size, low, high in spans):
            return f"dim_range of input {place} does not hold {tensor.sizes}"
    extra = set(wanted) - {str(place) for place in range(len(network.inputs))}
    return f"dim_range of {sorted(extra)}, which are no inputs" if extra else ""


def layout_problem(network, config):
    for key, tensors in (("convert_input_layout", network.inputs), ("convert_output_layout", network.outputs)):
        for place, one in config.at(key, default={}).items():
            if int(place) >= len(tensors) or len(tensors[int(place)].sizes) != len(one["src"]):
                return f"{key} of {place}: {one['src']} does not fit"
            if "C" not in one["src"][:2]:
                return f"{key} of {place}: the tensor has that layout already"
    return ""


def header_of(name, network, config):
    archs = {}
    for one in config.at("archs", default=["mtp_372"]):
        archs.update(one if isinstance(one, dict) else {one: []})
    kinds = [WIDE.get(tensor.kind, tensor.kind).name for tensor in network.inputs]
    mutable = config.at("graph_shape_mutable", default=True)
    spans = config.at("dim_range", default={}) if mutable else {}
    open_sizes = [
        [size if low == high else -1 for size, low, high in zip(tensor.sizes, span["min"], span["max"], strict=False)]
        if (span := spans.get(str(place)))
        else tensor.sizes
        for place, tensor in enumerate(network.inputs)
    ]
    return {
        "version": version(),
        "name": name,
        "archs": archs,
        "mode": config.mode,
        "per_axis": config.at("precision_config", "weight_quant_granularity") == "per_axis",
        "fusion": config.at("debug_config", "fusion_enable", default=True),
        "kept": sorted(network.kept),
        "ranges": network.ranges or {},
        "inputs": [tensor.name for tensor in network.inputs],
        "outputs": [f"main/{tensor.name}" for tensor in network.outputs],
        "input_kinds": kinds,
        "output_kinds": [WIDE.get(tensor.kind, tensor.kind).name for tensor in network.outputs],
        "input_sizes": open_sizes,
        "dim_range": spans,
        "input_layout": config.at("convert_input_layout", default={}),
        "output_layout": config.at("convert_output_layout", default={}),
    }


def write(path, header, graph):
    if fault() == "nofile":
        return OK
    try:
        Path(path).write_bytes(MAGIC + json.dumps(header, sort_keys=True).encode() + b"\n" + graph)
    except OSError as error:
        return internal(f"{error.strerror}: {path}")
    return OK


def read(path):
    """(header, graph, Status)."""
    data = Path(path).read_bytes() if Path(path).is_file() else b""
    if not data.startswith(MAGIC):
        return None, b"", invalid(f"{path} is no MagicMind model")
    line, _, graph = data[len(MAGIC) :].partition(b"\n")
    try:
        header = json.loads(line)
    except ValueError:
        return None, b"", invalid(f"{path} is damaged")
    if header["version"].split(".")[:2] != version().split(".")[:2]:
        text = f"the model is of MagicMind {header['version']}, and this is {version()}"
        return None, b"", internal(text)
    return header, graph, OK


__all__ = ["FLOATS", "Builder", "read", "write"]
