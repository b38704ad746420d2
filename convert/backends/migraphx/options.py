"""What ``--option`` takes: flags of ``migraphx-driver compile`` by name, variables of MIGraphX, and two of our own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from convert.backends.migraphx.versions import FLAGS, SEVERAL_PRECISIONS, Dialect
from convert.backends.options import check_options, choice
from convert.errors import UsageError
from convert.values import CompileOptions

SWITCHES: Mapping[str, str] = MappingProxyType(
    {
        "disable-fast-math": "on|off",
        "enable-offload-copy": "on|off (on: inputs and outputs lie in host memory)",
        "exhaustive-tune": "on|off (slow tuning of kernels on the card)",
        "mlir": "on|off (the whole module to rocMLIR)",
        "optimize": "on|off (generic passes while the graph is read)",
        "debug-symbols": "on|off (names of nodes stay on instructions)",
        "fp16": "on|off (beside int8: what is left in float32 becomes fp16)",
        "bf16": "on|off (beside int8: what is left in float32 becomes bf16)",
        "fp8": "on|off (dot and convolution in fp8, calibrated)",
        "int4-weights": "on|off (weights stored as int4)",
    }
)
WORDS: Mapping[str, str] = MappingProxyType(
    {
        "apply-pass": "NAME,NAME… (passes that run while the graph is read)",
        "calibration": "module|driver (module: on the given data; driver: on one random sample)",
        "calibration-samples": "a number (at most so many; 0: all)",
        "mixed-type": "fp16|bf16 (what the nodes become that a mixed plan doesn't keep)",
    }
)
VARIABLES = frozenset(
    {
        "MIGRAPHX_DISABLE_MIOPEN_FUSION",
        "MIGRAPHX_DISABLE_MLIR",
        "MIGRAPHX_DISABLE_PASSES",
        "MIGRAPHX_ENABLE_CK",
        "MIGRAPHX_ENABLE_FULL_DYNAMIC",
        "MIGRAPHX_ENABLE_NHWC",
        "MIGRAPHX_GPU_COMPILE_PARALLEL",
        "MIGRAPHX_GPU_HIP_FLAGS",
        "MIGRAPHX_MLIR_USE_SPECIFIC_OPS",
        "MIGRAPHX_NSTREAMS",
        "MIGRAPHX_PROBLEM_CACHE",
        "MIGRAPHX_SET_GEMM_PROVIDER",
        "MIGRAPHX_SKIP_BENCHMARKING",
        "MIGRAPHX_TIME_PASSES",
        "MIGRAPHX_TRACE_COMPILE",
        "MIGRAPHX_TRACE_ONNX_PARSER",
        "MIGRAPHX_TRACE_PASSES",
    }
)
"""Variables that change what is compiled or what is told (ROCm/AMDMIGraphX f729a52, docs and src)."""
FORMS = ("json", "text", "binary", "cpp", "python", "graphviz", "brief", "netron")
INPUTS = ("onnx", "tf", "migraphx", "migraphx-json", "nhwc", "nchw", "output-names", "test")
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "skip-unknown-operators": "the driver then writes a file that stops at load: Operator not found",
        "replace-literals": "weights would become inputs that nothing feeds",
        "strip-context": "it is about files that are compiled already",
        "trim": "it drops the end of the model",
        "trim-size": "it drops a part of the model",
        "batch": "it puts one number into every open dimension: say --dim NAME=NUMBER",
        "input-dim": "say --dim NAME=NUMBER",
        "dyn-input-dim": "say --dim NAME=LOW..HIGH",
        "default-dyn-dim": "say --dim NAME=LOW..HIGH",
        "dim-param": "say --dim NAME=LOW..HIGH",
        "int8": "say --precision int8",
        "output": "say --out",
        "gpu": "the target says it",
        "cpu": "AMD's packages have no such target",
        "ref": "say --target migraphx-ref",
        "log-level": "without the closing line nobody could tell whether the driver finished",
        "log-file": "the log is kept beside the artifact",
        **dict.fromkeys(FORMS, "the artifact has one form, the binary one"),
        **dict.fromkeys(INPUTS, "the graph is ONNX and in model/"),
        **dict.fromkeys(("fill0", "fill1", "load-arg"), "it only matters when the driver runs the model"),
    }
)
"""Flags of the driver that are not passed on, and why."""
GPU_ONLY = ("exhaustive-tune", "mlir", "enable-offload-copy")


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a request, checked. ``on``: switches that are on, by the flag's name without dashes."""

    on: frozenset[str]
    left_out: frozenset[str] = frozenset()
    """Switches that mean something on a card only, for a target that is none."""
    passes: tuple[str, ...] = ()
    calibration: str = "module"
    calibration_samples: int = 0
    mixed_type: str = "fp16"
    variables: dict[str, str] = {}


def chosen(options: CompileOptions, dialect: Dialect, *, gpu: bool) -> Chosen:
    """The options of a request as values. ``gpu``: the target is a card.

    Raises :class:`UsageError`: CNV-2071 unknown, CNV-2075 bad value, CNV-2241 not in this version, CNV-2242 a flag that
    is not passed on, CNV-2243 options that exclude each other.
    """
    given = options.options
    _refuse_own(given)
    variables = {name: value for name, value in given.items() if name in VARIABLES}
    plain = msgspec.structs.replace(options, options={k: v for k, v in given.items() if k not in variables})
    check_options(plain, {**SWITCHES, **WORDS, **dict.fromkeys(VARIABLES, "a value")})
    _refuse_unknown_here(given, dialect)
    on = {name for name in SWITCHES if _is_on(plain, name, gpu=gpu)}
    left_out = frozenset() if gpu else frozenset(on & set(GPU_ONLY))
    found = Chosen(
        on=frozenset(on - left_out),
        left_out=left_out,
        passes=tuple(name for name in given.get("apply-pass", "").split(",") if name),
        calibration=choice(plain, "calibration", ("module", "driver")),
        calibration_samples=_number(plain, "calibration-samples"),
        mixed_type=choice(plain, "mixed-type", ("fp16", "bf16")),
        variables=variables,
    )
    _refuse_pairs(options, found, dialect)
    return found


def _is_on(options: CompileOptions, name: str, *, gpu: bool) -> bool:
    order = ("on", "off") if name == "enable-offload-copy" and gpu else ("off", "on")
    return choice(options, name, order) == "on"


def _number(options: CompileOptions, name: str) -> int:
    text = options.options.get(name, "0")
    if not (text.isascii() and text.isdigit() and len(text) < 7):
        raise UsageError("CNV-2075", f"--option {name}={text}: not a number", hint="0 takes all of them")
    return int(text)


def _refuse_own(given: Mapping[str, str]) -> None:
    refused = {name: REFUSED[name.lstrip("-")] for name in given if name.lstrip("-") in REFUSED}
    if refused:
        told = "; ".join(f"{name}: {reason}" for name, reason in sorted(refused.items()))
        raise UsageError("CNV-2242", f"not passed on to migraphx-driver: {told}", hint="leave them out")


def _refuse_unknown_here(given: Mapping[str, str], dialect: Dialect) -> None:
    late = [name for name in given if f"--{name}" in FLAGS and f"--{name}" not in dialect.flags]
    if late:
        told = ", ".join(f"{name} (since {'.'.join(map(str, FLAGS[f'--{name}'].since))})" for name in sorted(late))
        whose = "the MIGraphX of DTK" if dialect.fork else f"MIGraphX {dialect.text}"
        raise UsageError("CNV-2241", f"{whose} does not have {told}", hint="leave it out, or take a newer ROCm")


def _refuse_pairs(options: CompileOptions, found: Chosen, dialect: Dialect) -> None:
    """All pairs that exclude each other, at once."""
    kinds = found.on & {"fp16", "bf16", "fp8", "int4-weights"}
    faults = []
    if {"fp16", "bf16"} <= found.on:
        faults.append("fp16 and bf16 both say what float32 becomes")
    if found.on & {"fp16", "bf16"} and options.precision != "int8":
        faults.append(f"fp16 and bf16 go beside int8; with --precision {options.precision} say --precision itself")
    if "fp8" in found.on and options.precision == "int8":
        faults.append("fp8 and int8 both take dot and convolution")
    if "int4-weights" in found.on and ("fp8" in found.on or options.precision == "int8") and calibrates(options, found):
        faults.append("int4-weights has no place in the Python module, which int8 and fp8 are calibrated with")
    if kinds and options.precision != "fp32" and dialect.level < SEVERAL_PRECISIONS:
        faults.append(f"MIGraphX {dialect.text} takes one precision at a time")
    if options.precision == "mixed" and options.keep and kinds:
        faults.append(f"a mixed plan casts the graph itself: {', '.join(sorted(kinds))} would cast it again")
    if found.passes and calibrates(options, found):
        faults.append("apply-pass is a flag of the driver, and int8 and fp8 are calibrated with the Python module")
    if faults:
        raise UsageError("CNV-2243", "; ".join(faults), hint="leave one of each pair out")


def calibrates(options: CompileOptions, found: Chosen) -> bool:
    """Whether the plan goes through the Python module, since only that calibrates on given data."""
    return found.calibration == "module" and (options.precision == "int8" or "fp8" in found.on)
