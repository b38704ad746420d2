"""Rewrites: parts of a graph in the place of equal ones that a target takes, each proven before it is kept.

    rewrite(model, names)   apply rewrites by name; each is proven with ONNX Runtime, and undone where it is not equal
    load_rule(name)         one rewrite, with what it makes avoidable

A rewrite is one file of this folder and one line in ``RULES``. Reading order: ``base.py``, ``nodes.py`` (what the files
build on), ``prove.py``, ``apply.py``, then the files. Importing this package imports no onnx.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from convert.errors import ExportError
from convert.rewrites.base import Applied, Avoided, Rewrite, RewriteResult, Undone

if TYPE_CHECKING:
    import onnx

__all__ = ["RULES", "Applied", "Avoided", "Rewrite", "RewriteResult", "Undone", "load_rule", "rewrite"]

RULES: Mapping[str, str] = {
    "antialias-to-matmul": "convert.rewrites.antialias:RULE",
    "attention-to-primitives": "convert.rewrites.attention:RULE",
    "computed-constants": "convert.rewrites.computed_constants:RULE",
    "computed-indices-to-int32": "convert.rewrites.int32_computed:RULE",
    "deformconv-to-gather": "convert.rewrites.deform_conv:RULE",
    "drop-identities": "convert.rewrites.identities:RULE",
    "einsum-to-matmul": "convert.rewrites.einsum:RULE",
    "explicit-pads": "convert.rewrites.explicit_pads:RULE",
    "fix-dims": "convert.rewrites.fix_dims:RULE",
    "fp16-masks": "convert.rewrites.fp16_masks:RULE",
    "fuse-gelu": "convert.rewrites.fuse_gelu:RULE",
    "fuse-layernorm": "convert.rewrites.fuse_layernorm:RULE",
    "gelu-to-primitives": "convert.rewrites.gelu:RULE",
    "gridsample-to-gather": "convert.rewrites.gridsample:RULE",
    "groupnorm-to-instancenorm": "convert.rewrites.groupnorm:RULE",
    "hardswish-to-hardsigmoid": "convert.rewrites.hardswish:RULE",
    "imports": "convert.rewrites.imports:RULE",
    "indices-to-int32": "convert.rewrites.int32_indices:RULE",
    "known-sizes": "convert.rewrites.known_sizes:RULE",
    "layernorm-to-primitives": "convert.rewrites.layernorm:RULE",
    "lift-1d": "convert.rewrites.lift_1d:RULE",
    "mish-to-softplus": "convert.rewrites.mish:RULE",
    "node-names": "convert.rewrites.node_names:RULE",
    "pad-to-gather": "convert.rewrites.pad_modes:RULE",
    "pairwise": "convert.rewrites.pairwise:RULE",
    "qdq-strip": "convert.rewrites.qdq_strip:RULE",
    "qdq-to-primitives": "convert.rewrites.qdq_primitives:RULE",
    "reshape-allowzero": "convert.rewrites.reshape_zero:RULE",
    "resize-half-pixel": "convert.rewrites.resize_modes:RULE",
    "rmsnorm-to-primitives": "convert.rewrites.rmsnorm:RULE",
    "rnn-defaults": "convert.rewrites.rnn_defaults:RULE",
    "rnn-direction": "convert.rewrites.rnn_direction:RULE",
    "rnn-layout": "convert.rewrites.rnn_layout:RULE",
    "rnn-to-primitives": "convert.rewrites.rnn_primitives:RULE",
    "scatter-to-loop": "convert.rewrites.scatter_reduction:RULE",
    "slice-bounds": "convert.rewrites.slice_bounds:RULE",
    "sort-nodes": "convert.rewrites.sort_nodes:RULE",
    "split-maxpool": "convert.rewrites.split_maxpool:RULE",
    "swish-to-sigmoid": "convert.rewrites.swish:RULE",
    "tie-weights": "convert.rewrites.tie_weights:RULE",
    "topk-sorted": "convert.rewrites.topk_sorted:RULE",
    "trilu-to-where": "convert.rewrites.trilu:RULE",
    "unroll-loop": "convert.rewrites.unroll_loop:RULE",
    "unroll-scan": "convert.rewrites.unroll_scan:RULE",
    "weights-not-inputs": "convert.rewrites.weights_not_inputs:RULE",
    "write-defaults": "convert.rewrites.write_defaults:RULE",
}
"""Every rewrite by name."""


def load_rule(name: str) -> Rewrite:
    """A rewrite by name; what follows a colon is its argument. Raises CNV-4111 for no such name."""
    plain = name.partition(":")[0]
    if plain not in RULES:
        raise ExportError(
            "CNV-4111",
            f"there is no rewrite '{plain}'",
            hint="rewrites are: " + ", ".join(sorted(RULES)),
        )
    module, _, attribute = RULES[plain].partition(":")
    rule: Rewrite = getattr(import_module(module), attribute)
    return rule


def rewrite(
    model: onnx.ModelProto,
    names: Sequence[str],
    *,
    samples: Sequence[Mapping[str, Any]] = (),
    folder: str = "",
) -> RewriteResult:
    """Apply rewrites in the order of their names; the given model is left as it is.

    A name may carry an argument: ``fix-dims:N=1``. Each rewrite that changes something is proven on ``samples`` (arrays
    by input name) and on random inputs of two sizes, and undone where the outputs differ. ``folder`` is where external
    data lies. Raises CNV-4111 for an unknown name and CNV-4112 for an argument that can't be read.
    """
    from convert.rewrites.apply import apply_all

    return apply_all(model, tuple((load_rule(name), name.partition(":")[2]) for name in names), samples, folder)
