"""What ``--option`` takes: keys of the builder's configuration, by name or by their path, and words of our own."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from convert.backends.magicmind.shapes import layouts
from convert.backends.magicmind.versions import CLUSTERS_SINCE, Key, keys, lacks, seen_with
from convert.backends.options import choice
from convert.errors import UsageError
from convert.values import CompileOptions, OnnxGraph

OWN: Mapping[str, str] = MappingProxyType(
    {
        "input_layout": "NHWC, or 0:NHWC,1:NTC (inputs that the artifact takes channels last)",
        "output_layout": "NHWC, or 0:NHWC (outputs that it gives channels last)",
        "clusters": "6,8 or any (counts of clusters to build for)",
        "fusion_retry": "on|off (on: a build that fails is tried again with fusion_enable=false)",
        "precision_mode": "a mode of MagicMind that belongs to --precision (qint16_mixed_float32, …)",
        "calibration_algo": "linear|eqnm",
        "calibration_samples": "a number (at most so many; 0: all)",
        "device": "a number (the card to calibrate on)",
        "rpc_server": "ADDRESS:PORT (a machine whose card calibrates)",
    }
)
CALIBRATING = ("calibration_algo", "calibration_samples", "device", "rpc_server")
MODES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "fp32": ("force_float32",),
        "fp16": ("force_float16",),
        "mixed": ("force_float16",),
        "int8": ("qint8_mixed_float16", "qint8_mixed_float32", "qint16_mixed_float16", "qint16_mixed_float32"),
    }
)
"""Precision → modes of MagicMind, the usual one first (magicmind_cloud build_param.py). There is none for bfloat16."""
ADDRESS = re.compile(r"[A-Za-z0-9.\-]{1,253}:[0-9]{1,5}|\[[0-9A-Fa-f:]{2,45}\]:[0-9]{1,5}")
WIDE = ("int64", "uint64", "float64")
JSON_BYTES = 4096
MOST_DEVICES = 256
MOST_SAMPLES = 1_000_000


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a request, checked. ``config``: what they say of the builder's configuration."""

    mode: str
    config: dict[str, Any]
    input_layouts: dict[int, str]
    output_layouts: dict[int, str]
    fusion_retry: bool
    algorithm: str
    samples: int
    device: int
    rpc_server: str

    @property
    def quantized(self) -> bool:
        """Whether the build calibrates."""
        return self.mode.startswith("qint")


def chosen(graph: OnnxGraph, options: CompileOptions, level: tuple[int, int], *, ranged: bool) -> Chosen:
    """The options of a request as values. ``level``: of MagicMind's release; ``ranged``: sizes are a range.

    Raises :class:`UsageError`: CNV-2071 unknown, CNV-2075 bad value, CNV-2221 not known of this release, CNV-2223
    options that exclude each other, CNV-2224 a key that is not passed on, CNV-2226 a layout that doesn't fit.
    """
    given = _by_path(options)
    _refuse_own(given)
    _refuse_unknown_here(given, level)
    config: dict[str, Any] = {}
    for path, text in given.items():
        _put(config, path, _value(options, path, text, level))
    found = Chosen(
        mode=choice(options, "precision_mode", MODES[options.precision]),
        config=config,
        input_layouts=layouts(options.options.get("input_layout", ""), graph.inputs, "input_layout"),
        output_layouts=layouts(options.options.get("output_layout", ""), graph.outputs, "output_layout"),
        fusion_retry=choice(options, "fusion_retry", ("on", "off")) == "on",
        algorithm=choice(options, "calibration_algo", ("linear", "eqnm")),
        samples=_number(options, "calibration_samples", MOST_SAMPLES),
        device=_number(options, "device", MOST_DEVICES),
        rpc_server=_address(options),
    )
    if faults := list(_pairs(graph, options, found, given, ranged=ranged)):
        raise UsageError("CNV-2223", "; ".join(faults), hint="leave one of each pair out")
    if options.options.get("clusters") and level < CLUSTERS_SINCE:
        raise UsageError(
            "CNV-2221",
            "counts of clusters are known of MagicMind 1.0 and later only",
            hint="leave --option clusters out, or take a newer MagicMind",
        )
    return found


def _by_path(options: CompileOptions) -> dict[str, str]:
    """The given keys of the configuration by their path. Raises CNV-2071, all unknown ones at once."""
    names = {path.rpartition(".")[2]: path for path in keys()} | {path: path for path in keys()}
    unknown = [name for name in options.options if name not in names and name not in OWN]
    if not unknown:
        return {names[name]: text for name, text in options.options.items() if name in names and name not in OWN}
    usable = {name: keys()[path].takes for name, path in names.items() if "." not in name and not keys()[path].instead}
    near = [match for name in unknown for match in difflib.get_close_matches(name, [*names, *OWN], n=1)]
    offered = ", ".join(f"{name}={takes}" for name, takes in sorted((usable | dict(OWN)).items()))
    guess = f"did you mean {' or '.join(near)}? " if near else ""
    raise UsageError(
        "CNV-2071",
        f"the backend {options.backend} has no option {', '.join(map(repr, unknown))}",
        hint=f"{guess}options: {offered}",
    )


def _refuse_own(given: Mapping[str, str]) -> None:
    refused = {path: keys()[path].instead for path in given if keys()[path].instead}
    if refused:
        told = "; ".join(f"{path}: {reason}" for path, reason in sorted(refused.items()))
        raise UsageError("CNV-2224", f"not passed on to MagicMind: {told}", hint="leave them out")


def _refuse_unknown_here(given: Mapping[str, str], level: tuple[int, int]) -> None:
    late = [path for path in given if lacks(keys()[path], level)]
    if late:
        told = ", ".join(f"{path} ({seen_with(keys()[path])})" for path in sorted(late))
        raise UsageError(
            "CNV-2221",
            f"nothing shows that MagicMind {level[0]}.{level[1]} has {told}",
            hint="leave it out, or take one of those releases",
        )


def _value(options: CompileOptions, path: str, text: str, level: tuple[int, int]) -> Any:
    """An option's text as the value that its key has. Raises CNV-2075."""
    key: Key = keys()[path]
    if key.takes == "json":
        return _object(path, text)
    if text not in key.takes.split("|"):
        raise UsageError(
            "CNV-2075",
            f"--option {path}={text}: not one of {', '.join(key.takes.split('|'))}",
            hint="leave it out, or take one of those",
        )
    if path == "debug_config.print_ir":
        return {"print_level": 1} if level >= (1, 0) else {"before_build": True, "after_build": True}
    return {"true": True, "false": False}.get(text, text)


def _object(path: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text) if len(text) <= JSON_BYTES else None
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise UsageError(
            "CNV-2075",
            f"--option {path}: not a JSON object of at most {JSON_BYTES} bytes",
            hint='such as {"IConvDepthwiseNode": {"input": {"1": {"quant_granularity": "per_axis"}}}}',
        )
    return value


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    outer, _, name = path.rpartition(".")
    (config.setdefault(outer, {}) if outer else config)[name] = value


def _number(options: CompileOptions, name: str, most: int) -> int:
    text = options.options.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 8 and int(text) <= most):
        raise UsageError("CNV-2075", f"--option {name}={text}: no number up to {most}", hint="leave it out for 0")
    return int(text)


def _address(options: CompileOptions) -> str:
    text = options.options.get("rpc_server", "")
    if text and not ADDRESS.fullmatch(text):
        raise UsageError(
            "CNV-2075",
            f"--option rpc_server={text[:100]}: no address",
            hint="write ADDRESS:PORT, such as 10.0.0.7:9009",
        )
    return text


def _pairs(
    graph: OnnxGraph, options: CompileOptions, found: Chosen, given: Mapping[str, str], *, ranged: bool
) -> Iterator[str]:
    """What excludes each other, one sentence each."""
    if not found.quantized:
        idle = [path for path in given if keys()[path].quantized]
        idle += [name for name in CALIBRATING if name in options.options]
        if idle:
            yield f"{', '.join(sorted(idle))}: for a quantized precision only, and this is {options.precision}"
    if ranged and given.get("graph_shape_mutable") == "false":
        yield "graph_shape_mutable=false needs fixed sizes, and --dim names a range"
    wide = [spec.name for spec in (*graph.inputs, *graph.outputs) if spec.dtype in WIDE]
    if wide and given.get("opt_config.type64to32_conversion") == "false":
        yield f"type64to32_conversion=false, and {', '.join(wide[:3])} has 64 bits, which MagicMind does not compute in"
    if given.get("debug_config.fusion_enable") == "true" and options.options.get("fusion_retry") == "on":
        yield "fusion_enable=true, and fusion_retry=on would turn it off"
