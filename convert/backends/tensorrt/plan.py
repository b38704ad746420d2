"""The plan for trtexec: which options this release has for what is asked. Pure.

From TensorRT 11 on there are no options of precision: types are those of the ONNX model. The graph is then cast (fp16,
bf16, mixed) before trtexec sees it. int8 stands in the graph as QuantizeLinear and DequantizeLinear in every release.
An engine runs with the TensorRT that built it and on the generation of card that it was built on, which stands in the
plan's ``needs``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from convert.backends.base import MODEL_IN, OUT, Toolchain
from convert.backends.casting import CAST, CAST_IN
from convert.backends.options import check_precision
from convert.backends.pairs import check_ranges
from convert.backends.spans import Span, open_inputs, sizes_at, spans_of, usual_sizes
from convert.backends.tensorrt.flags import NUMBER, Release, check_together, has, passed_through, release_of
from convert.errors import UsageError
from convert.values import CompileOptions, Note, OnnxGraph, Plan
from op_registry.values import Target

NAME = "tensorrt"
PROGRAM = "trtexec"
OUTPUT = "model.plan"
PRECISIONS = ("fp32", "fp16", "bf16", "int8", "mixed")
ASSUMED = "10.15.1"
"""The release that the operator data is of; the newest that was read is 11.1."""
OLDEST, NEWEST = (8, 4), (11, 1)
TYPED = (11, 0)
"""From this release on, networks take their types from the model."""


def make_plan(graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
    """The plan.

    Raises :class:`UsageError`: CNV-2071, CNV-2075, CNV-2265 and CNV-2266 for ``--option``, CNV-2072 for the precision,
    CNV-2267 for an open dimension, CNV-2268 for int8 without anything to take ranges from, CNV-2269 for a release that
    is not known or lacks the precision, CNV-2270 for a name that trtexec can't be told.
    """
    check_precision(options, target, PRECISIONS)
    release = _release(toolchain, options)
    spans = spans_of(graph, usual_sizes(options.options.get("opt", "")), takes="TensorRT")
    precision, files, source, notes = _precision(graph, options, release)
    extra = passed_through(options.options, release)
    argv = (
        toolchain.details.get("program", PROGRAM),
        f"--onnx={source}",
        f"--saveEngine={OUT}/{OUTPUT}",
        "--skipInference" if has("skipInference", release) else "--buildOnly",
        *precision,
        *_shapes(graph, spans),
        *_memory(options.options),
        *(word for word in extra if word not in precision),
    )
    check_together(argv[1:])
    return Plan(
        backend=NAME,
        argv=argv,
        files=files,
        output=OUTPUT,
        needs={
            "toolchain": "TensorRT",
            "version": toolchain.version,
            "card": toolchain.details.get("card", target.name),
            "arch": toolchain.details.get("arch", target.arch),
        },
        notes=(*notes, *_ties(argv, toolchain)),
    )


def _release(toolchain: Toolchain, options: CompileOptions) -> Release:
    release = release_of(toolchain.version)
    if release < OLDEST:
        raise UsageError(
            "CNV-2269",
            f"TensorRT {toolchain.version} is older than what is known here, or its version can't be read",
            hint=f"use TensorRT {'.'.join(map(str, OLDEST))} to {'.'.join(map(str, NEWEST))}",
        )
    if options.precision == "bf16" and release < (9, 0):
        raise UsageError(
            "CNV-2269",
            f"TensorRT {toolchain.version} has no bf16",
            hint="it came with 9.0; use --precision fp16 or fp32, or a newer TensorRT",
        )
    return release


# ----------------------------------------------------------------------------------------------------------- precision


def _precision(
    graph: OnnxGraph, options: CompileOptions, release: Release
) -> tuple[tuple[str, ...], dict[str, str], str, tuple[Note, ...]]:
    """The words, the files to write, the graph that trtexec reads, and notes."""
    precision = options.precision
    if precision == "fp32":
        tf32 = options.options.get("tf32", "off")
        if tf32 not in ("on", "off"):
            raise UsageError("CNV-2075", f"--option tf32={tf32}: not on or off", hint="leave it out for off")
        return (() if tf32 == "on" else ("--noTF32",)), {}, MODEL_IN, ()
    if precision == "int8":
        return _int8(graph, options, release)
    if release >= TYPED or options.options.get("stronglyTyped", "false") not in ("false", "0", "off"):
        wanted = "fp16" if precision == "mixed" else precision
        text = json.dumps({"precision": wanted, "keep": sorted(options.keep)}, indent=2) + "\n"
        return (), {CAST: text}, CAST_IN, ()
    if precision == "mixed":
        return _mixed(options)
    return (f"--{precision}",), {}, MODEL_IN, ()


def _mixed(options: CompileOptions) -> tuple[tuple[str, ...], dict[str, str], str, tuple[Note, ...]]:
    if not options.keep:
        note = Note(text="mixed: the forecast found no node that has to stay in fp32, so this is fp16")
        return ("--fp16",), {}, MODEL_IN, (note,)
    kept = ",".join(f"{quoted(name)}:fp32" for name in options.keep)
    constraint = options.options.get("precisionConstraints", "obey")
    words = (
        "--fp16",
        f"--precisionConstraints={constraint}",
        f"--layerPrecisions={kept}",
        f"--layerOutputTypes={kept}",
    )
    return words, {}, MODEL_IN, ()


def _int8(
    graph: OnnxGraph, options: CompileOptions, release: Release
) -> tuple[tuple[str, ...], dict[str, str], str, tuple[Note, ...]]:
    """int8 by the pairs in the graph, or by a calibration cache, which releases before 11 read."""
    typed = release >= TYPED
    if typed or not options.options.get("calib"):
        check_ranges(graph, instead="" if typed else ", or a cache of ranges with --option calib=FILE")
    return () if typed else ("--int8",), {}, MODEL_IN, ()


# ------------------------------------------------------------------------------------------------- shapes, memory, ties


def _shapes(graph: OnnxGraph, spans: Mapping[str, Span]) -> tuple[str, ...]:
    """The three shapes of each input that has an open dimension; a static model takes none."""
    inputs = open_inputs(graph)
    if not inputs:
        return ()
    return tuple(
        f"--{place}Shapes=" + ",".join(shape_word(spec.name, sizes_at(spec, spans, place)) for spec in inputs)
        for place in ("min", "opt", "max")
    )


def shape_word(name: str, sizes: tuple[int, ...]) -> str:
    """``name:1x3x8x8``; a scalar is ``name:scalar``."""
    return f"{quoted(name)}:{'x'.join(map(str, sizes)) or 'scalar'}"


def quoted(name: str) -> str:
    """A name as trtexec's lists take it: one with ``:`` or ``,`` in quotes. Raises UsageError CNV-2270."""
    if "'" in name or "*" in name or not name.isprintable():
        raise UsageError(
            "CNV-2270",
            f"trtexec can't be told the name {name!r}",
            hint="rename it in the model: no quotes, no * and no control characters",
        )
    return f"'{name}'" if ":" in name or "," in name else name


def _memory(options: Mapping[str, str]) -> tuple[str, ...]:
    size = options.get("workspace", "")
    if not size:
        return ()
    if not NUMBER.fullmatch(size):
        raise UsageError("CNV-2075", f"--option workspace={size}: not a number", hint="a number of MiB: 4096")
    if "memPoolSize" in options:
        raise UsageError(
            "CNV-2266",
            "--option workspace and memPoolSize exclude each other",
            hint="memPoolSize=workspace:4096 is both",
        )
    return (f"--memPoolSize=workspace:{size}",)


def _ties(argv: tuple[str, ...], toolchain: Toolchain) -> tuple[Note, ...]:
    """What an engine is bound to, in words."""
    version = (
        f"TensorRT {toolchain.version.partition('.')[0]} from {toolchain.version} on"
        if "--versionCompatible" in argv
        else f"TensorRT {toolchain.version} alone"
    )
    level = next((word.partition("=")[2] for word in argv if word.startswith("--hardwareCompatibilityLevel=")), "none")
    cards = {"ampere+": "cards from Ampere on", "sameComputeCapability": "cards of the same compute capability"}
    notes = [
        Note(text=f"the engine runs with {version}, on {cards.get(level, 'the model of card that it was built on')}")
    ]
    release = release_of(toolchain.version)
    if release > NEWEST:
        newest = ".".join(map(str, NEWEST))
        notes.append(
            Note(level="warning", text=f"TensorRT {toolchain.version} is newer than {newest}, whose options are used")
        )
    return tuple(notes)
