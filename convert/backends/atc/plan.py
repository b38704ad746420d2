"""A plan of ``atc``: everything decided, as one argument list. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from convert.backends.atc.aipp import AIPP, aipp_files
from convert.backends.atc.amct import CONFIG_OPTION, DEPLOYED, amct_files, wants_amct
from convert.backends.atc.flags import Flag, flags_of, option_faults, set_faults
from convert.backends.atc.precision import KEEP_OPS, PRECISIONS, precision_flags
from convert.backends.atc.shapes import Shaping, shape_flags
from convert.backends.atc.soc import SocChoice, choose_soc
from convert.backends.base import MODEL_IN, OUT, SOC, Toolchain
from convert.backends.options import check_precision
from convert.errors import UsageError
from convert.values import CompileOptions, Note, OnnxGraph, Plan
from op_registry.values import Target
from op_registry.versions import in_range, is_version

NAME = "CANN"
OLDEST = "5.0"
STEM = "model"
OUTPUT = f"{STEM}.om"
BIG_WEIGHTS = 2 << 30
"""From here on weights go beside the ``.om``: sizes above 2 GiB are refused in one file (E13023, E19022)."""
OPSETS = (8, 18)
PRECHECK = {"precheck": ("auto", "yes", "no")}
"""An option of ours, which the run reads: ask ``--mode=3`` before compiling."""
OURS = (KEEP_OPS, CONFIG_OPTION, *PRECHECK)
"""Options that are no flags of atc."""
FIRST = ("framework", "model", "output", "soc_version", "input_format", "input_shape", "input_shape_range")
FIRST_STEPS = ("dynamic_batch_size", "dynamic_image_size", "dynamic_dims", "precision_mode_v2", "precision_mode")


def make_plan(graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
    """Decide everything.

    Raises :class:`UsageError`: CNV-2072 precision, CNV-2201 and CNV-2202 SoC, CNV-2203 shapes, CNV-2204 flags,
    CNV-2205 preprocessing, CNV-2206 a precision that this version or graph can't have, CNV-2207 version.
    """
    version = _version(options, toolchain)
    check_precision(options, target, PRECISIONS)
    soc = choose_soc(target, options, toolchain, version)
    flags = flags_of(version, toolchain.details.get("flags", "").split())
    shaping = _shaping(graph, options, version, soc.arch)
    _check_shapes(graph, shaping, target.name)
    precision = precision_flags(graph, target, options, _listed(flags, toolchain), version)
    own_files, own = _asked(options, flags)
    amct, amct_notes = amct_files(graph, options) if wants_amct(graph, options) else ({}, ())
    aipp, aipp_faults = aipp_files(graph, options.preprocess) if options.preprocess else ({}, [])
    weights = {"external_weight": "1"} if graph.weight_bytes >= BIG_WEIGHTS and "external_weight" in flags else {}
    source = DEPLOYED if amct else MODEL_IN
    fixed = {"framework": "5", "model": source, "output": f"{OUT}/{STEM}", "soc_version": soc.soc, "log": "error"}
    image = {"insert_op_conf": AIPP} if aipp else {}
    chosen = {**fixed, **weights, **shaping.flags, **own, **precision.flags, **image}
    faults = [*_flag_faults(graph, options, flags, version), *_format_faults(options, shaping)]
    faults += [f"CANN {version} has no flag {name}" for name in chosen if name not in flags]
    _check_flags(chosen, [*faults, *precision.faults, *aipp_faults], version=version, arch=soc.arch)
    beside = chosen.get("external_weight", "0") != "0"
    return Plan(
        backend="atc",
        argv=("atc", *(f"--{name}={chosen[name]}" for name in _ordered(chosen))),
        files={**own_files, **precision.files, **aipp, **amct},
        output=OUTPUT,
        needs=_needs(version, soc, launched="launcher" in toolchain.details, amct=bool(amct)),
        notes=(*shaping.notes, *precision.notes, *amct_notes, *_notes(graph, toolchain, beside=beside)),
    )


def _shaping(graph: OnnxGraph, options: CompileOptions, version: str, arch: str) -> Shaping:
    layout = options.options.get("input_format", "NCHW" if options.preprocess else "")
    return shape_flags(graph, version=version, arch=arch, int8=options.precision == "int8", layout=layout)


def _version(options: CompileOptions, toolchain: Toolchain) -> str:
    version = options.toolchain_version if toolchain.assumed and options.toolchain_version else toolchain.version
    if is_version(version) and in_range(version, f">={OLDEST}"):
        return version
    raise UsageError(
        "CNV-2207",
        f"CANN {version!r} is no version that is known here",
        hint="CANN 5.1 to 9.2 are known; write it like 8.1.RC1 or 8.5.0",
    )


def _listed(flags: Mapping[str, Flag], toolchain: Toolchain) -> Mapping[str, Flag]:
    """The flags that may be chosen for a user: of an installed toolkit, only those that its own help lists."""
    listed = set(toolchain.details.get("flags", "").split())
    return {name: flag for name, flag in flags.items() if name in listed} if listed else flags


def _check_shapes(graph: OnnxGraph, shaping: Shaping, target: str) -> None:
    faults = list(shaping.faults)
    if not OPSETS[0] <= graph.opset <= OPSETS[1]:
        faults.append(f"the graph has opset {graph.opset}, and atc takes {OPSETS[0]} to {OPSETS[1]}")
    if not graph.inputs or not graph.outputs:
        faults.append("atc refuses a graph without an input or without an output")
    if faults:
        raise UsageError(
            "CNV-2203",
            f"{target} does not take these shapes: {'; '.join(faults)}",
            hint="--dim NAME=SIZE fixes a dimension, --dim NAME=A,B,C lists sizes, --opset 17 exports at another opset",
        )


def _asked(options: CompileOptions, flags: Mapping[str, Flag]) -> tuple[dict[str, str], dict[str, str]]:
    """The user's own flags: files to write, and flags with the names of those files in place of their content."""
    files: dict[str, str] = {}
    chosen: dict[str, str] = {}
    for name, value in sorted(options.options.items()):
        flag = flags.get(name)
        if name in OURS or flag is None or flag.kind in ("own", "refused"):
            continue
        if flag.kind == "file":
            ending = "json" if value.lstrip().startswith("{") else "ini" if name == "op_precision_mode" else "cfg"
            files[f"{name}.{ending}"] = value if value.endswith("\n") else f"{value}\n"
            chosen[name] = f"{name}.{ending}"
        else:
            chosen[name] = value
    return files, chosen


def _flag_faults(graph: OnnxGraph, options: CompileOptions, flags: Mapping[str, Flag], version: str) -> list[str]:
    """What is wrong with the user's own flags; inputs that input_fp16_nodes names must be there (E10016, E10017)."""
    own = {name: value for name, value in options.options.items() if name not in OURS}
    names = {spec.name for spec in graph.inputs}
    halves = filter(None, own.get("input_fp16_nodes", "").split(";"))
    unknown = [f"input_fp16_nodes: no input is called {name!r}" for name in halves if name not in names]
    stray = CONFIG_OPTION in options.options and not wants_amct(graph, options)
    unused = [f"{CONFIG_OPTION} is for int8, where AMCT calibrates"] if stray else []
    asked = [(name, options.options[name], values) for name, values in PRECHECK.items() if name in options.options]
    wrong = [f"{name}={value}: it takes {', '.join(values)}" for name, value, values in asked if value not in values]
    return [*option_faults(own, flags, version), *unknown, *unused, *wrong]


def _format_faults(options: CompileOptions, shaping: Shaping) -> list[str]:
    """Steps of images need NCHW, steps of free dimensions ND, an AIPP NCHW."""
    if options.preprocess and shaping.form == "ranged":
        return [
            "--preprocess takes a fixed batch or listed ones (--dim N=1 or --dim N=1,4): no manual has a static AIPP"
            " beside ranges"
        ]
    asked = options.options.get("input_format")
    wanted = {"image": "NCHW", "dims": "ND"}.get(shaping.form, "NCHW" if options.preprocess else "")
    if asked and wanted and asked != wanted:
        also = " and preprocessing" if options.preprocess else ""
        return [f"input_format={asked} does not go with {shaping.form} shapes{also}"]
    return []


def _check_flags(chosen: Mapping[str, str], faults: list[str], *, version: str, arch: str) -> None:
    """Refuse a set of flags that atc would refuse, telling all faults at once. Raises UsageError CNV-2204."""
    told = [*faults, *set_faults(chosen, version, arch)]
    if told:
        raise UsageError(
            "CNV-2204",
            f"atc of CANN {version} does not take these flags: {'; '.join(dict.fromkeys(told))}",
            hint="--option KEY=VALUE takes the flags of `atc --help` without the dashes; docs/concepts/atc.md has more",
        )


def _ordered(chosen: Mapping[str, str]) -> list[str]:
    first = [name for name in (*FIRST, *FIRST_STEPS) if name in chosen]
    return [*first, *sorted(set(chosen) - set(first))]


def _needs(version: str, soc: SocChoice, *, launched: bool, amct: bool) -> dict[str, str]:
    """What the compiling machine must be. ``launched``: behind a launcher, where programs go by their plain names."""
    needs = {"toolchain": NAME, "version": version, "soc": soc.soc}
    needs |= {"soc_members": " ".join(soc.members)} if soc.soc == SOC else {}
    needs |= {"launched": "yes"} if launched else {}
    return {**needs, "calibration": "AMCT (amct_onnx)"} if amct else needs


def _notes(graph: OnnxGraph, toolchain: Toolchain, *, beside: bool) -> tuple[Note, ...]:
    """``beside``: the weights go into files of their own."""
    notes = []
    if graph.opset < 11:
        notes.append(Note(level="warning", text=f"opset {graph.opset}: the manual promises 11 to 18"))
    if beside:
        text = (
            "the weights go into files weight.NAME beside the .om (external_weight): keep them together; a runtime of"
        )
        notes.append(Note(text=f"{text} your own finds each as NAME in a folder `weight` beside it"))
    if missing := toolchain.details.get("python_missing"):
        text = f"the Python that atc uses lacks {missing}: operators that need compiling will fail"
        notes.append(Note(level="warning", text=text))
    if wrong := toolchain.details.get("python_wrong"):
        notes.append(Note(level="warning", text=wrong))
    return tuple(notes)
