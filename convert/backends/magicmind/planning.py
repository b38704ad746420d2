"""From graph, target, options and toolchain to a plan. Pure.

MagicMind has no command-line compiler: ``mm_build`` is a sample that a user compiles first. So the plan is one run of a
script, ``magicmind_job.py``, in the SDK's own Python; what it does stands in a file of the plan, its job. The script
needs nothing of this program, so the same plan works in a bundle that is carried elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from convert.backends.base import MODEL_IN, OUT, Toolchain
from convert.backends.children import calibration_names, script_text, settings_text
from convert.backends.magicmind.cards import clusters_for
from convert.backends.magicmind.options import MODES, Chosen, chosen
from convert.backends.magicmind.shapes import conversions, dim_range, fixed_dims, is_range
from convert.backends.magicmind.versions import ARCHS, CLUSTERS_SINCE, NEWEST, OLDEST, level_of
from convert.backends.options import check_precision
from convert.backends.spans import Span, spans_of
from convert.errors import UsageError
from convert.values import CompileOptions, Note, OnnxGraph, Plan
from op_registry.values import Target

NAME = "magicmind"
PACKAGE = "convert.backends.magicmind"
ARTIFACT = "model.mm"
SCRIPT = "magicmind_job.py"
SETTINGS = "magicmind_build.json"
WEIGHTS = "model.onnx.data"
SHOWN_OPSET = 11
"""The highest opset that public code gives to MagicMind (magicmind_cloud export scripts)."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """What a plan is made of, once everything that was asked has been checked."""

    graph: OnnxGraph
    target: Target
    options: CompileOptions
    toolchain: Toolchain
    level: tuple[int, int]
    chosen: Chosen
    spans: dict[str, Span]
    clusters: tuple[int, ...]

    @property
    def ranged(self) -> bool:
        """Whether sizes are a range."""
        return is_range(self.spans)


def make_plan(graph: OnnxGraph, target: Target, options: CompileOptions, toolchain: Toolchain) -> Plan:
    """The plan of a request.

    Raises :class:`UsageError`: CNV-2222 for a card that MagicMind does not build for, CNV-2227 for a release that is
    too old, CNV-2072 for the precision, CNV-2267 for a dimension without an end, CNV-2225 for int8 that can't be
    calibrated, and what :func:`convert.backends.magicmind.options.chosen` raises.
    """
    level = level_of(toolchain.version)
    _check_release(target, level, toolchain.version)
    check_precision(options, target, tuple(MODES))
    spans = spans_of(graph, {}, takes="MagicMind")
    found = chosen(graph, options, level, ranged=is_range(spans))
    job = Job(
        graph=graph,
        target=target,
        options=options,
        toolchain=toolchain,
        level=level,
        chosen=found,
        spans=spans,
        clusters=clusters_for(target, options) if level >= CLUSTERS_SINCE else (),
    )
    if found.quantized:
        _check_calibration(job)
    return Plan(
        backend=NAME,
        argv=(toolchain.details.get("program", "python3"), SCRIPT, "build", SETTINGS),
        files={SCRIPT: script_text(PACKAGE, "child_job"), SETTINGS: settings_text(_settings(job))},
        output=ARTIFACT,
        needs=_needs(job),
        notes=tuple(_notes(job)),
    )


def _check_release(target: Target, level: tuple[int, int], version: str) -> None:
    since = ARCHS.get(target.arch)
    if since is None:
        raise UsageError(
            "CNV-2222",
            f"MagicMind builds nothing for {target.name}",
            hint="it builds for the MLU370 and MLU500 series; `convert targets` lists them",
        )
    if level < OLDEST:
        raise UsageError(
            "CNV-2227",
            f"MagicMind {version} is older than 0.13, the first release for the MLU300 series",
            hint="install a newer MagicMind; 1.7 is the newest that is known here",
        )
    if level < since:
        raise UsageError(
            "CNV-2222",
            f"MagicMind {version} does not know {target.name}",
            hint="install MagicMind 1.0 or newer",
        )


def _check_calibration(job: Job) -> None:
    if not calibration_names(job.graph):
        raise UsageError(
            "CNV-2225",
            "int8 is calibrated on data, and there are neither calibration inputs nor samples",
            hint="give --calibration",
        )
    card = job.toolchain.assumed or job.toolchain.details.get("card") or job.toolchain.details.get("launcher")
    if not card and not job.chosen.rpc_server:
        raise UsageError(
            "CNV-2225",
            "int8 is calibrated on a card, and this machine has MagicMind and no card",
            hint="name a machine that has one, --option rpc_server=ADDRESS:9009, or take --precision fp16",
        )


# -------------------------------------------------------------------------------------------------------------- the job


def _settings(job: Job) -> dict[str, Any]:
    """What the script is told."""
    settings: dict[str, Any] = {
        "model": MODEL_IN,
        "output": f"{OUT}/{ARTIFACT}",
        "name": "model",
        "config": _config(job),
        "inputs": [spec.name for spec in job.graph.inputs],
        "dims": fixed_dims(job.graph, job.spans) if not job.ranged else {},
        "floats": {
            kind: {str(place): spec.dtype for place, spec in enumerate(specs) if spec.dtype in ("float32", "float16")}
            for kind, specs in (("inputs", job.graph.inputs), ("outputs", job.graph.outputs))
        },
        "keep": sorted(job.options.keep),
        "retry": _retry(job),
    }
    if job.chosen.quantized:
        names = calibration_names(job.graph)
        settings["calibration"] = {
            "files": names[: job.chosen.samples] if job.chosen.samples else names,
            "algorithm": job.chosen.algorithm,
            "device": job.chosen.device,
            "remote": job.chosen.rpc_server,
        }
    return settings


def _retry(job: Job) -> dict[str, Any]:
    """What is overlaid when the build is tried again; empty: it is not."""
    decided = "fusion_enable" in job.chosen.config.get("debug_config", {})
    return {"debug_config": {"fusion_enable": False}} if job.chosen.fusion_retry and not decided else {}


def _config(job: Job) -> dict[str, Any]:
    """The builder's configuration: what the request needs, with the options laid over it."""
    arch: Any = {job.target.arch: list(job.clusters)} if job.clusters else job.target.arch
    config: dict[str, Any] = {
        "archs": [arch],
        "graph_shape_mutable": job.ranged,
        "precision_config": {"precision_mode": job.chosen.mode},
        "opt_config": {"type64to32_conversion": True},
    }
    if job.ranged:
        config["dim_range"] = dim_range(job.graph, job.spans)
    if job.chosen.input_layouts:
        config["convert_input_layout"] = conversions(job.chosen.input_layouts)
    if job.chosen.output_layouts:
        config["convert_output_layout"] = conversions(job.chosen.output_layouts)
    return overlaid(config, job.chosen.config)


def overlaid(config: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """One configuration over another: objects are merged one level deep, as MagicMind merges what it parses."""
    merged = dict(config)
    for name, value in other.items():
        both = isinstance(value, dict) and isinstance(merged.get(name), dict)
        merged[name] = {**merged[name], **value} if both else value
    return merged


# ------------------------------------------------------------------------------------------------------------- the rest


def _needs(job: Job) -> dict[str, str]:
    needs = {
        "toolchain": "MagicMind",
        "version": job.toolchain.version,
        "arch": job.target.arch,
        "python_module": "magicmind",
    }
    if job.clusters:
        needs["clusters"] = ",".join(map(str, job.clusters))
    if job.chosen.quantized:
        needs["python_packages"] = "numpy"
        needs["calibration"] = job.chosen.rpc_server or "a card"
    return needs


def _notes(job: Job) -> list[Note]:
    notes = []
    if job.level > NEWEST:
        text = f"MagicMind {job.toolchain.version} is newer than what is known here: keys and habits are those of 1.7"
        notes.append(Note(level="warning", text=text))
    if job.graph.opset > SHOWN_OPSET:
        text = f"public code gives MagicMind opset {SHOWN_OPSET} at most, and this graph has {job.graph.opset}"
        notes.append(Note(level="warning", text=text))
    if any(entry.name == WEIGHTS for entry in job.graph.files):
        text = "the weights lie beside the graph; nothing public shows that MagicMind's parser reads such a model"
        notes.append(Note(level="warning", text=text, subject=WEIGHTS))
    if job.ranged:
        notes.append(_range_note(job))
    if job.chosen.quantized and not job.graph.calibration_count:
        text = f"calibrated on the model's own samples ({job.graph.sample_count}): --calibration gives data made for it"
        notes.append(Note(level="warning", text=text))
    return [*notes, *_keep_notes(job)]


def _range_note(job: Job) -> Note:
    names = [name for name, span in job.spans.items() if span.low != span.high]
    told = ", ".join(f"{name} {job.spans[name].low} to {job.spans[name].high}" for name in names)
    stepped = any(dim.sizes for dim in job.graph.dims if dim.name in names)
    text = f"built for a range of sizes: {told}" + ("; MagicMind has no list of sizes" if stepped else "")
    return Note(text=text, subject=", ".join(names))


def _keep_notes(job: Job) -> list[Note]:
    """What MagicMind can say of nodes that stay in fp32: their precision, node by node, in the network."""
    count = len(job.options.keep)
    if job.options.precision == "mixed" and not count:
        return [Note(text="no node is to be kept in fp32, so mixed is force_float16 here")]
    if not count:
        return []
    nodes = "1 node is" if count == 1 else f"{count} nodes are"
    text = f"{nodes} set to float32 one by one, with the mode {job.chosen.mode} for the rest"
    if job.options.precision == "mixed":
        text += "; that a node's own precision goes before a force mode is not public, so the gate on the card decides"
    return [Note(level="warning" if job.options.precision == "mixed" else "info", text=text)]
