"""From graph, target, options and toolchain to a plan. Pure.

Two ways lead to an artifact. The driver compiles the graph as it is told by flags. Where int8 or fp8 are calibrated on
given data, the Python module does it in a script of the plan's own, since the driver calibrates on one random sample.

A mixed plan names nodes that stay in fp32. Neither the driver nor the module takes names of nodes (``quantize_fp16``
takes names of MIGraphX operators, such as ``dot``), so the graph is cast by ``convert.precision`` first.
"""

from __future__ import annotations

from typing import Any

import msgspec

from convert.backends.base import MODEL_IN, OUT, Toolchain
from convert.backends.children import script_text, settings_text
from convert.backends.migraphx.dims import Span, dim_words, module_dims, spans_of
from convert.backends.migraphx.options import Chosen, calibrates, chosen
from convert.backends.migraphx.versions import ASSUMED_FORK, FLAGS, NEWEST, OLDEST, Dialect, dialect_of
from convert.backends.options import check_precision
from convert.errors import UsageError
from convert.values import CompileOptions, Note, OnnxGraph, Plan
from op_registry.values import Target

NAME = "migraphx"
PACKAGE = "convert.backends.migraphx"
DRIVER = "migraphx-driver"
REFERENCE = "migraphx-ref"
"""The target that is MIGraphX's own reference implementation, on any CPU."""
REFERENCE_ARCH = "ref"
ARTIFACT = "model.mxr"
MIXED_IN = "model/mixed.onnx"
MIXED_PLAN = "mixed.json"
SCRIPT = "migraphx_compile.py"
SCRIPT_SETTINGS = "migraphx_compile.json"
PRECISIONS = ("fp32", "fp16", "bf16", "int8", "mixed")
FUSION_PLANS = ("gfx900", "gfx906", "gfx908", "gfx1030")
"""On these MIOpen makes fusion plans, which an .mxr does not hold (ROCm/AMDMIGraphX fuse_ops.cpp, load_save.cpp)."""
LOG_INFO = "3"
"""``MIGRAPHX_LOG_LEVEL`` at which the closing line is printed (2.16)."""
RANGE_OF_INT8 = "int8 needs fixed sizes: MIGraphX stops with `SHAPE: lens() called on a dynamic shape`"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is made of, once everything that was asked has been checked."""

    graph: OnnxGraph
    target: Target
    options: CompileOptions
    toolchain: Toolchain
    dialect: Dialect
    chosen: Chosen
    spans: dict[str, Span]

    @property
    def gpu(self) -> bool:
        """Whether the target is a card."""
        return self.target.arch != REFERENCE_ARCH

    @property
    def paired(self) -> bool:
        """Whether the graph brings int8 itself: its pairs of QuantizeLinear and DequantizeLinear are read as such."""
        return self.options.precision == "int8" and "QuantizeLinear" in self.graph.ops

    @property
    def casts(self) -> bool:
        """Whether the graph is cast here, before it is compiled."""
        return self.options.precision == "mixed" and bool(self.options.keep)


def make_plan(graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
    """The plan of a request.

    Raises :class:`UsageError`: what :func:`chosen` and :func:`spans_of` raise; CNV-2072 and CNV-2245 for a precision
    that the target, or this version, does not take; CNV-2243 for int8 or fp8 with sizes that are a range.
    """
    dialect = dialect_for(target, options, toolchain)
    check_precision(options, target, PRECISIONS)
    gpu = target.arch != REFERENCE_ARCH
    found = chosen(options, dialect, gpu=gpu)
    job = Job(
        graph=graph,
        target=target,
        options=options,
        toolchain=toolchain,
        dialect=dialect,
        chosen=found,
        spans=spans_of(graph, dialect),
    )
    _refuse_precision(job)
    by_module = calibrates(options, found) and not (job.paired and "fp8" not in found.on)
    argv = _script_argv(job) if by_module else _driver_argv(job)
    return Plan(
        backend=NAME,
        argv=argv,
        environment=_environment(job, by_module=by_module),
        files={**_script_files(job, by_module=by_module), **_mixed_files(job)},
        output=ARTIFACT,
        needs=_needs(job, by_module=by_module),
        notes=tuple(_notes(job, by_module=by_module)),
    )


def dialect_for(target: Target, options: CompileOptions, toolchain: Toolchain) -> Dialect:
    """How the driver is spoken to: as probed, or as the request says where none was found."""
    flavour = toolchain.details.get("flavour", "")
    fork = flavour == "dtk" or (not flavour and target.vendor == "hygon")
    if flavour:
        return dialect_of(toolchain.version, fork=fork)
    return dialect_of(options.toolchain_version or (ASSUMED_FORK if fork else toolchain.version), fork=fork)


def _refuse_precision(job: Job) -> None:
    wanted = job.chosen.mixed_type if job.options.precision == "mixed" else job.options.precision
    flag = f"--{wanted}"
    if flag in FLAGS and flag not in job.dialect.flags:
        whose = "the MIGraphX of DTK" if job.dialect.fork else f"MIGraphX {job.dialect.text}"
        since = ".".join(map(str, FLAGS[flag].since))
        raise UsageError(
            "CNV-2245",
            f"{whose} does not have {wanted}: it came with {since}",
            hint="take --precision fp16, or a newer toolchain",
        )
    if job.target.precisions.get(wanted) == "no" or ("fp8" in job.chosen.on and job.target.precisions["fp8"] == "no"):
        lacks = wanted if job.target.precisions.get(wanted) == "no" else "fp8"
        raise UsageError("CNV-2072", f"{job.target.name} does not take {lacks}", hint="take --precision fp16")
    quantized = (job.options.precision == "int8" and not job.paired) or "fp8" in job.chosen.on
    ranges = [name for name, span in job.spans.items() if not span.fixed]
    if quantized and ranges and not job.dialect.fork:
        fixes = " ".join(f"--dim {name}={job.spans[name].high}" for name in ranges)
        raise UsageError("CNV-2243", f"{RANGE_OF_INT8} ({', '.join(ranges)})", hint=f"fix them: {fixes}")


# ---------------------------------------------------------------------------------------------------------- the driver


def _driver_argv(job: Job) -> tuple[str, ...]:
    """The words for the driver: the command, the file (a list flag would swallow it), switches, dims, the output."""
    on = job.chosen.on
    passes = ("--apply-pass", *job.chosen.passes) if job.chosen.passes else ()
    return (
        job.toolchain.details.get("program", DRIVER),
        "compile",
        MIXED_IN if job.casts else MODEL_IN,
        "--gpu" if job.gpu else "--ref",
        *(f"--{name}" for name in sorted(on - {"fp16", "bf16", "fp8", "int4-weights"})),
        *_precision_flags(job),
        *dim_words(job.graph, job.spans, job.dialect),
        *passes,
        "-o",
        f"{OUT}/{ARTIFACT}",
    )


def _precision_flags(job: Job) -> tuple[str, ...]:
    """In the order in which the driver applies them."""
    wanted = job.options.precision
    asked = set(job.chosen.on)
    if wanted == "mixed" and not job.casts:
        asked.add(job.chosen.mixed_type)
    elif wanted != "mixed" and not job.paired:
        asked.add(wanted)
    return tuple(f"--{name}" for name in ("fp16", "bf16", "int8", "fp8", "int4-weights") if name in asked)


# ---------------------------------------------------------------------------------------------------------- the module


def _script_argv(job: Job) -> tuple[str, ...]:
    return (job.toolchain.details.get("python", "python3"), SCRIPT, SCRIPT_SETTINGS)


def _script_files(job: Job, *, by_module: bool) -> dict[str, str]:
    if not by_module:
        return {}
    settings: dict[str, Any] = {
        "model": MIXED_IN if job.casts else MODEL_IN,
        "output": f"{OUT}/{ARTIFACT}",
        "target": "gpu" if job.gpu else "ref",
        "precisions": [flag.removeprefix("--") for flag in _precision_flags(job)],
        "input_dims": module_dims(job.graph, job.spans),
        "offload_copy": "enable-offload-copy" in job.chosen.on,
        "fast_math": "disable-fast-math" not in job.chosen.on,
        "exhaustive_tune": "exhaustive-tune" in job.chosen.on,
        "calibration": ["calibration"] if job.graph.calibration_count else ["samples"],
        "calibration_samples": job.chosen.calibration_samples,
    }
    return {
        SCRIPT: script_text(PACKAGE, "child_compile"),
        SCRIPT_SETTINGS: settings_text(settings),
    }


# ------------------------------------------------------------------------------------------------------------ the rest


def _mixed_files(job: Job) -> dict[str, str]:
    if not job.casts:
        return {}
    said = {"precision": job.chosen.mixed_type, "keep": sorted(job.options.keep)}
    return {MIXED_PLAN: settings_text(said)}


def _environment(job: Job, *, by_module: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    if job.dialect.level >= (2, 16):
        found["MIGRAPHX_LOG_LEVEL"] = LOG_INFO
    if job.gpu and job.target.arch in FUSION_PLANS:
        found["MIGRAPHX_DISABLE_MIOPEN_FUSION"] = "1"
    if job.dialect.fork and any(not span.fixed for span in job.spans.values()):
        found["MIGRAPHX_DYNAMIC_SHAPE"] = "1"
    if by_module and job.toolchain.details.get("pythonpath"):
        found["PYTHONPATH"] = job.toolchain.details["pythonpath"]
    return {**found, **job.chosen.variables}


def _needs(job: Job, *, by_module: bool) -> dict[str, str]:
    needs = {
        "toolchain": "DTK" if job.dialect.fork else "MIGraphX",
        "version": job.dialect.text,
        "program": DRIVER,
        "arch": job.target.arch,
    }
    if job.gpu:
        needs["card"] = job.target.arch
    if job.dialect.file_version:
        needs["mxr"] = str(job.dialect.file_version)
    if job.toolchain.details.get("dtk"):
        needs["dtk"] = job.toolchain.details["dtk"]
    if by_module:
        needs["python_module"] = "migraphx"
    return needs


def _notes(job: Job, *, by_module: bool) -> list[Note]:
    notes = [*_version_notes(job.dialect)]
    if by_module and not job.graph.calibration_count:
        text = f"calibrated on the model's own samples ({job.graph.sample_count}): --calibration gives data made for it"
        notes.append(Note(level="warning", text=text))
    elif job.paired:
        notes.append(Note(text="the graph's own pairs of QuantizeLinear and DequantizeLinear say what is int8"))
    elif job.options.precision == "int8" and not by_module:
        text = "the driver calibrates on one random sample: accuracy suffers (--option calibration=module)"
        notes.append(Note(level="warning", text=text))
    if job.options.precision == "int8" and job.options.keep and not job.paired:
        text = (
            f"{len(job.options.keep)} nodes that the forecast would keep in float become int8 too: MIGraphX quantizes"
        )
        notes.append(Note(level="warning", text=f"{text} by kinds of operators, not by nodes"))
    if job.casts:
        text = (
            f"{len(job.options.keep)} nodes stay in fp32 and the others become {job.chosen.mixed_type}: the graph is"
            " cast before it is compiled, since migraphx-driver takes no list of nodes"
        )
        notes.append(Note(text=text))
    elif job.options.precision == "mixed":
        notes.append(Note(text=f"no node is to be kept in fp32, so mixed is {job.chosen.mixed_type} here"))
    if any(not span.fixed for span in job.spans.values()):
        notes.append(_range_note(job))
    if job.chosen.left_out:
        names = ", ".join(sorted(job.chosen.left_out))
        notes.append(Note(text=f"left out, since they are for a card: {names}"))
    beside = sorted(job.chosen.on & {"fp8", "int4-weights"})
    return [*notes, *(Note(text=f"{name} is judged by the gate of {job.options.precision}") for name in beside)]


def _version_notes(dialect: Dialect) -> list[Note]:
    """A driver that is older or newer than what is known is spoken to as the nearest that is."""
    if dialect.fork or OLDEST <= dialect.version <= NEWEST:
        return []
    other = "newer" if dialect.version > NEWEST else "older"
    spoken = ".".join(map(str, dialect.level))
    text = f"MIGraphX {dialect.text} is {other} than what is known here: it is spoken to as {spoken}"
    return [Note(level="warning", text=text)]


def _range_note(job: Job) -> Note:
    names = ", ".join(name for name, span in job.spans.items() if not span.fixed)
    if job.dialect.fork:
        text = f"{names}: DTK builds for the greatest size and reshapes before each run (MIGRAPHX_DYNAMIC_SHAPE=1)"
        return Note(level="warning", text=f"{text}; told by its tutorials, not seen on a card", subject=names)
    return Note(text=f"{names} stays open: the sizes are a range, and are not checked when the artifact runs")
