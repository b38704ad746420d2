"""Precision modes of atc, and the nodes and operator types that keep theirs. Pure.

| asked | matrix units | the rest | flag (v2, from 6.2; before) |
|---|---|---|---|
| fp32 | fp32, or fp16 in and fp32 out where the part has no other | fp32 | ``origin``; ``cube_fp16in_fp32out``; … |
| fp16 | fp16 | fp16 | ``fp16``; ``force_fp16`` |
| bf16 | bf16 where atc's own lists allow it | fp32 | ``mixed_bfloat16``; ``allow_mix_precision_bf16`` |
| mixed | fp16 but for the nodes named | fp16 | ``fp16`` with ``keep_dtype`` |
| mixed, no nodes named | fp16 where atc's own lists allow it | fp32 | ``mixed_float16``; ``allow_mix_precision`` |

Sources: ATC manuals of CANN 6.2.RC2, 6.3.RC2 and 8.0, pages of --precision_mode, --precision_mode_v2, --keep_dtype and
--modify_mixlist; hicann/ge api/atc/cmd_flag_info.cc.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from convert.backends.atc.amct import wants_amct
from convert.backends.atc.flags import Flag
from convert.errors import UsageError
from convert.values import CompileOptions, Note, OnnxGraph, Precision
from op_registry.values import Target

PRECISIONS = ("fp32", "fp16", "bf16", "int8", "mixed")
KEEP_DTYPE = "keep_dtype.cfg"
MIXLIST = "mixlist.json"
KEEP_OPS = "keep_ops"
"""An option of ours: ONNX operator types that stay in fp32, written as atc's black list."""

MODES: dict[str, tuple[tuple[str, str], ...]] = {
    "fp32": (("precision_mode_v2", "origin"), ("precision_mode", "must_keep_origin_dtype")),
    "fp32 partial": (
        ("precision_mode_v2", "cube_fp16in_fp32out"),
        ("precision_mode", "cube_fp16in_fp32out"),
        ("precision_mode", "force_fp32"),
        ("precision_mode", "allow_fp32_to_fp16"),
    ),
    "fp16": (("precision_mode_v2", "fp16"), ("precision_mode", "force_fp16")),
    "bf16": (("precision_mode_v2", "mixed_bfloat16"), ("precision_mode", "allow_mix_precision_bf16")),
    "mixed": (
        ("precision_mode_v2", "mixed_float16"),
        ("precision_mode", "allow_mix_precision_fp16"),
        ("precision_mode", "allow_mix_precision"),
    ),
}
"""By what is asked, the flags and values to try in order: the first that the version has is taken."""
OWN_CHOICE: dict[Precision, frozenset[str]] = {
    "fp32": frozenset({"origin", "must_keep_origin_dtype", "force_fp32", "cube_fp16in_fp32out", "allow_fp32_to_fp16"}),
    "fp16": frozenset({"fp16", "force_fp16", "allow_fp32_to_fp16", "cube_fp16in_fp32out"}),
    "bf16": frozenset({"mixed_bfloat16", "allow_mix_precision_bf16", "allow_fp32_to_bf16"}),
    "mixed": frozenset(
        {
            "mixed_float16",
            "allow_mix_precision",
            "allow_mix_precision_fp16",
            "cube_fp16in_fp32out",
            "allow_fp32_to_fp16",
            "fp16",
            "force_fp16",
        }
    ),
    "int8": frozenset({"fp16", "force_fp16", "mixed_float16", "allow_mix_precision", "cube_fp16in_fp32out"}),
}
"""Modes that ``--option precision_mode…=`` may choose for each ``--precision``. A graph that AMCT quantized must not be
compiled with ``origin``, ``must_keep_origin_dtype`` or ``force_fp32`` (ATC manual of CANN 8.0, overview)."""


class PrecisionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The flags, the files they name, faults and remarks."""

    flags: dict[str, str]
    files: dict[str, str] = {}
    faults: tuple[str, ...] = ()
    notes: tuple[Note, ...] = ()


def precision_flags(
    graph: OnnxGraph, target: Target, options: CompileOptions, flags: Mapping[str, Flag], version: str
) -> PrecisionPlan:
    """The mode of a precision, and the files of what is kept.

    Raises :class:`UsageError` CNV-2206 where this version, or the graph, can't have the precision.
    """
    asked = options.precision
    calibrated = wants_amct(graph, options)
    name, value = _mode(target, options, flags, version)
    faults: list[str] = []
    names: tuple[str, ...] = ("precision_mode_v2", "precision_mode")
    own = {key: options.options[key] for key in names if key in options.options}
    for key, mode in own.items():
        if mode not in OWN_CHOICE[asked]:
            faults.append(f"{key}={mode} does not give {asked}; for it: {', '.join(sorted(OWN_CHOICE[asked]))}")
    if own:
        chosen = dict(own)
        value = next(iter(own.values()))
    else:
        chosen = {name: value}
    # What the forecast of int8 keeps in float, AMCT leaves out.
    kept = _kept(msgspec.structs.replace(options, keep=()) if calibrated else options, flags, value)
    return PrecisionPlan(
        flags={**chosen, **kept.flags},
        files=kept.files,
        faults=(*faults, *kept.faults),
        notes=(*_notes(target, options, value), *kept.notes),
    )


def _mode(target: Target, options: CompileOptions, flags: Mapping[str, Flag], version: str) -> tuple[str, str]:
    asked: str = options.precision
    if asked == "fp32" and target.precisions.get("fp32") != "yes":
        asked = "fp32 partial"
    elif asked == "int8" or (asked == "mixed" and options.keep and KEEP_OPS not in options.options):
        asked = "fp16"
    if "modify_mixlist" in options.options and asked == "fp16" and options.precision == "mixed":
        asked = "mixed"
    for name, value in MODES[asked]:
        flag = flags.get(name)
        if flag is not None and value in flag.values:
            return name, value
    raise UsageError(
        "CNV-2206",
        f"CANN {version} has no mode for {options.precision}",
        hint="take a newer toolkit, or --precision fp16",
    )


def _kept(options: CompileOptions, flags: Mapping[str, Flag], mode: str) -> PrecisionPlan:
    """``keep_dtype`` for the nodes of ``options.keep``, ``modify_mixlist`` for operator types."""
    chosen: dict[str, str] = {}
    files: dict[str, str] = {}
    faults: list[str] = []
    if options.keep:
        faults += [f"{name!r} can't be written as a line of keep_dtype" for name in options.keep if not _line(name)]
        if "keep_dtype" in options.options:
            faults.append("keep_dtype is given twice: by --option, and by the nodes that the forecast keeps")
        if mode in ("origin", "must_keep_origin_dtype"):
            faults.append(f"keep_dtype has no effect beside {mode}")
        chosen["keep_dtype"] = KEEP_DTYPE
        files[KEEP_DTYPE] = "".join(f"{name}\n" for name in dict.fromkeys(options.keep))
    if KEEP_OPS in options.options:
        if "modify_mixlist" in options.options:
            faults.append(f"{KEEP_OPS} writes modify_mixlist, so both can't be given")
        types, unknown = _ascend_types(options.options[KEEP_OPS])
        faults += [f"{KEEP_OPS}: no Ascend operator is known for {name!r}" for name in unknown]
        chosen["modify_mixlist"] = MIXLIST
        files[MIXLIST] = json.dumps({"black-list": {"to-add": types}}, indent=2) + "\n"
    return PrecisionPlan(flags=chosen, files=files, faults=tuple(faults))


def _line(name: str) -> bool:
    return bool(name.strip()) and name.isprintable() and name == name.strip()


def _ascend_types(text: str) -> tuple[list[str], list[str]]:
    """Ascend operator types of ONNX ones, by the plug-in registry; and those that it does not have."""
    from op_registry.support import load_support

    rows = load_support("ascend", "9.2").rows
    types: list[str] = []
    unknown: list[str] = []
    for name in (part.strip() for part in text.split(",")):
        runs_as = next((row.runs_as for row in rows.get(("", name), ()) if row.runs_as.strip("|")), "")
        if runs_as:
            types += [part for part in runs_as.split("|") if part != "PartitionedCall" and part not in types]
        else:
            unknown.append(name)
    return types, unknown


def _notes(target: Target, options: CompileOptions, mode: str) -> tuple[Note, ...]:
    notes = []
    if options.precision == "fp32" and mode in ("cube_fp16in_fp32out", "force_fp32", "allow_fp32_to_fp16"):
        text = f"the matrix units of {target.name} have no full fp32: they take fp16 ({mode}), the rest stays fp32"
        notes.append(Note(level="warning", text=text))
    if options.precision == "bf16":
        text = "atc has no mode that puts everything into bf16: its own lists say which operators go to bf16"
        notes.append(Note(text=text))
    if options.precision == "mixed" and not options.keep and KEEP_OPS not in options.options:
        notes.append(Note(text="no nodes are named to stay in fp32: atc's own lists decide"))
    return tuple(notes)
