"""The builder's configuration: which keys and values it takes, by release."""

import json

from magicmind._double.base import OK, invalid, level

MODES = ("force_float32", "force_float16", "qint8_mixed_float16", "qint8_mixed_float32", "qint16_mixed_float16",
         "qint16_mixed_float32")  # fmt: skip
LAYOUTS = [("NCHW", "NHWC"), ("NCT", "NTC"), ("NCDHW", "NDHWC")]
LAYOUTS += [(right, left) for left, right in LAYOUTS]


class BuilderConfig:
    def __init__(self):
        self.values = {}
        self.mlu_archs = None

    def parse_from_string(self, text):
        try:
            given = json.loads(text)
        except ValueError:
            return invalid("the configuration is no JSON")
        if not isinstance(given, dict):
            return invalid("the configuration is no JSON object")
        for name, value in given.items():
            if name not in CHECKS or (name in NEWER and level() < (1, 0)):
                return invalid(f"unknown key {name}")
            if problem := CHECKS[name](value):
                return invalid(f"{name}: {problem}")
        for name, value in given.items():
            both = isinstance(value, dict) and isinstance(self.values.get(name), dict)
            self.values[name] = {**self.values[name], **value} if both else value
        return OK

    def parse_from_file(self, path):
        with open(path) as stream:
            return self.parse_from_string(stream.read())

    def at(self, *path, default=None):
        value = self.values
        for name in path:
            value = value.get(name, {}) if isinstance(value, dict) else {}
        return default if value == {} else value

    @property
    def mode(self):
        return self.at("precision_config", "precision_mode", default="force_float32")


def flag(value):
    return "" if isinstance(value, bool) else "not a boolean"


def one_of(*values):
    return lambda value: "" if value in values else f"{value!r} is none of {', '.join(values)}"


def an_object(value):
    return "" if isinstance(value, dict) else "not an object"


def group(**fields):
    def check(value):
        if not isinstance(value, dict):
            return "not an object"
        for name, inner in value.items():
            if name not in fields:
                return f"unknown key {name}"
            if problem := fields[name](inner):
                return f"{name}: {problem}"
        return ""

    return check


def archs(value):
    known = ["mtp_372", "tp_322", "mtp_220"] + (["mtp_592", "tp_520"] if level() >= (1, 0) else [])
    if not isinstance(value, list) or not value:
        return "not a list of archs"
    for one in value:
        if isinstance(one, dict) and level() < (1, 0):
            return "counts of clusters are not known"
        names = list(one) if isinstance(one, dict) else [one]
        if any(name not in known for name in names):
            return f"unknown arch {names}"
        counts = [count for name in names for count in one[name]] if isinstance(one, dict) else []
        if any(not isinstance(count, int) or count < 1 for count in counts):
            return f"bad counts of clusters {counts}"
    return ""


def ranges(value):
    if not isinstance(value, dict):
        return "not an object"
    for place, one in value.items():
        if not place.isdigit() or set(one) != {"min", "max"} or len(one["min"]) != len(one["max"]):
            return f"bad range of input {place}"
        if any(not 0 < low <= high for low, high in zip(one["min"], one["max"], strict=True)):
            return f"min of input {place} is above max"
    return ""


def layout(value):
    if not isinstance(value, dict):
        return "not an object"
    wrong = [place for place, one in value.items() if (one.get("src"), one.get("dst")) not in LAYOUTS]
    return f"bad layouts of {wrong}" if wrong else ""


def print_ir(value):
    known = {"print_level"} if level() >= (1, 0) else {"before_build", "after_build"}
    return "" if isinstance(value, dict) and set(value) <= known else f"print_ir knows {sorted(known)}"


def tfu(value):
    return flag(value) if level() < (1, 0) else "unknown key"


NEWER = {"computation_preference", "enable_refit", "custom_nodes"}
CHECKS = {
    "archs": archs,
    "graph_shape_mutable": flag,
    "dim_range": ranges,
    "computation_preference": one_of("auto", "fast", "high_precision"),
    "compute_determinism": flag,
    "convert_input_layout": layout,
    "convert_output_layout": layout,
    "enable_refit": flag,
    "custom_nodes": an_object,
    "custom_ranges": an_object,
    "precision_config": group(
        precision_mode=one_of(*MODES),
        weight_quant_granularity=one_of("per_tensor", "per_axis"),
        activation_quant_algo=one_of("symmetric", "asymmetric"),
    ),
    "opt_config": group(
        type64to32_conversion=flag, conv_scale_fold=flag, clustering_launch_enable=flag, tfu_enable=tfu
    ),
    "debug_config": group(fusion_enable=flag, print_ir=print_ir),
}
