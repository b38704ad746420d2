"""The plan for ixrtexec. Pure.

ixrtexec has no version of its own; which flags it has tells its edition, named by the month in which they came:

    2024-09   fp16 and int8 alone
    2025-06   fp32, a timing cache, levels of effort
    2025-11   bf16
    2025-12   several precisions at once, strongly typed networks

It brings a model to opset 11 where onnx can, builds, and then always runs the engine once on made-up inputs.
(Deep-Spark/iluvatar-corex-ixrt ixrt/cli/ixrtexec.py, ixrt/cli/utils/exec_parser.py and io_info.py.)
"""

from __future__ import annotations

import difflib
import functools
import json
import re
import tomllib
from collections.abc import Mapping
from importlib import resources
from pathlib import PurePosixPath

import msgspec

from convert.backends.base import MODEL_IN, OUT, Toolchain
from convert.backends.casting import CAST, CAST_IN
from convert.backends.options import check_precision
from convert.backends.pairs import check_ranges
from convert.backends.spans import open_inputs, sizes_at, spans_of, usual_sizes
from convert.errors import UsageError
from convert.values import CompileOptions, Note, OnnxGraph, Plan
from op_registry.values import Target

NAME = "ixrt"
PROGRAM = "ixrtexec"
OUTPUT = "model.engine"
PRECISIONS = ("fp32", "fp16", "bf16", "int8", "mixed")
ASSUMED = "1.1.0"
"""IxRT's newest public version (ixrt/version.py)."""
EDITIONS = ("2024-09", "2025-06", "2025-11", "2025-12")
SINCE = {"fp32": "2025-06", "bf16": "2025-11", "mixed": "2025-12"}
DTYPES = frozenset(
    "float32 float16 bfloat16 float64 int8 uint8 int16 uint16 int32 int64 bool".split()  # noqa: SIM905
)
"""What an input or output may be (io_info.py)."""
OURS = {"opt": "NAME:SIZE,NAME:SIZE (the sizes to optimize for; else the highest)"}


class Flag(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One flag of ixrtexec."""

    since: str = EDITIONS[0]
    takes: str


@functools.cache
def flags() -> Mapping[str, Flag]:
    """Every flag that is passed through, by name."""
    text = resources.files("convert.backends.ixrt").joinpath("flags.toml").read_text(encoding="utf-8")
    return {name: msgspec.convert(row, Flag) for name, row in tomllib.loads(text)["flags"].items()}


def edition_of(toolchain: Toolchain) -> str:
    """The edition of an ixrtexec: as it was found, else the newest."""
    return toolchain.details.get("edition", EDITIONS[-1])


def make_plan(graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
    """The plan.

    Raises :class:`UsageError`: CNV-2071, CNV-2075 and CNV-2265 for ``--option``, CNV-2072 and CNV-2269 for the
    precision, CNV-2267 for an open dimension, CNV-2268 for int8 without data, CNV-2270 for a name that ixrtexec can't
    be told, CNV-2271 for inputs and outputs that it does not take.
    """
    check_precision(options, target, PRECISIONS)
    _takes(graph)
    edition = edition_of(toolchain)
    since = SINCE.get(options.precision, EDITIONS[0])
    if edition < since:
        raise UsageError(
            "CNV-2269",
            f"this ixrtexec has no {options.precision}",
            hint=f"it came with the ixrtexec of {since}; use --precision fp16, or a newer CoreX SDK",
        )
    words, files, source, notes = _precision(graph, options, edition)
    argv = (
        toolchain.details.get("program", PROGRAM),
        "--onnx",
        source,
        *words,
        *_shapes(graph, options),
        *_passed_through(options.options, edition, words),
        "--save_engine",
        f"{OUT}/{OUTPUT}",
        "--iterations",
        "1",
        "--warmUp",
        "0",
    )
    tie = Note(text=f"the engine runs with the IxRT that built it ({toolchain.version}) on {target.name}")
    needs = {"toolchain": "IxRT", "version": toolchain.version, "card": target.name, "edition": edition}
    return Plan(backend=NAME, argv=argv, files=files, output=OUTPUT, needs=needs, notes=(*notes, tie))


def _takes(graph: OnnxGraph) -> None:
    wrong = [f"{spec.name} is a scalar" for spec in graph.inputs if not spec.shape]
    wrong += [f"{spec.name} is {spec.dtype}" for spec in (*graph.inputs, *graph.outputs) if spec.dtype not in DTYPES]
    if wrong:
        raise UsageError(
            "CNV-2271",
            f"ixrtexec does not take these inputs and outputs: {', '.join(wrong)}",
            hint="give a scalar one dimension, and cast other dtypes inside the model",
        )
    odd = [spec.name for spec in open_inputs(graph) if "," in spec.name or not spec.name.isprintable()]
    if odd:
        raise UsageError(
            "CNV-2270",
            f"ixrtexec can't be told the name {odd[0]!r}",
            hint="rename it in the model: no comma and no control characters",
        )


def _precision(
    graph: OnnxGraph, options: CompileOptions, edition: str
) -> tuple[tuple[str, ...], dict[str, str], str, tuple[Note, ...]]:
    """The words, the files to write, the graph that ixrtexec reads, and notes."""
    precision = options.precision
    if precision == "mixed":
        text = json.dumps({"precision": "fp16", "keep": sorted(options.keep)}, indent=2) + "\n"
        return ("--strongly_typed",), {CAST: text}, CAST_IN, ()
    if precision == "int8" and not options.options.get("quant_file"):
        check_ranges(graph, instead=", or --option quant_file=FILE")
    return ("--precision", precision), {}, MODEL_IN, ()


def _shapes(graph: OnnxGraph, options: CompileOptions) -> tuple[str, ...]:
    spans = spans_of(graph, usual_sizes(options.options.get("opt", "")), takes="IxRT")
    inputs = open_inputs(graph)
    words: list[str] = []
    for place in ("min", "opt", "max") if inputs else ():
        shapes = (f"{spec.name}:{'x'.join(map(str, sizes_at(spec, spans, place)))}" for spec in inputs)
        words += [f"--{place}_shape", ",".join(shapes)]
    return tuple(words)


def _passed_through(options: Mapping[str, str], edition: str, there: tuple[str, ...]) -> tuple[str, ...]:
    unknown = sorted(name for name in options if name not in flags() and name not in OURS)
    if unknown:
        offered = sorted([*flags(), *OURS])
        near = [match for name in unknown for match in difflib.get_close_matches(name, offered, n=1)]
        guess = f"did you mean {' or '.join(near)}? " if near else ""
        raise UsageError(
            "CNV-2071",
            f"the backend ixrt has no option {', '.join(map(repr, unknown))}",
            hint=f"{guess}options: {', '.join(offered)}",
        )
    words: list[str] = []
    for name, text in sorted(options.items()):
        if name in OURS or f"--{name}" in there:
            continue
        flag = flags()[name]
        if edition < flag.since:
            raise UsageError(
                "CNV-2265",
                f"--option {name}: this ixrtexec does not have it",
                hint=f"it came with the ixrtexec of {flag.since}",
            )
        words += _words(name, flag, text)
    return tuple(words)


def _words(name: str, flag: Flag, text: str) -> list[str]:
    good = {
        "switch": text in ("true", "false", "1", "0", "on", "off", ""),
        "number": bool(re.fullmatch(r"\d{1,9}", text)),
        "file": text.isprintable() and PurePosixPath(text).is_absolute(),
        "text": bool(text) and text.isprintable() and not text.startswith("-") and len(text) <= 4000,
    }.get(flag.takes, text in flag.takes.split("|"))
    if not good:
        takes = {
            "switch": "true or false",
            "number": "a number",
            "file": "an absolute path",
            "text": "one line of text",
        }
        raise UsageError(
            "CNV-2075",
            f"--option {name}={text}: not what it takes",
            hint=f"it takes {takes.get(flag.takes, flag.takes.replace('|', ', '))}",
        )
    if flag.takes == "switch":
        return [f"--{name}"] if text in ("true", "1", "on", "") else []
    return [f"--{name}", text]
