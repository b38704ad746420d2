"""Traces of torch's own attention, with gradients (its parts) and without (the fused operators of its fast path)."""

from __future__ import annotations

import io
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

from convert.errors import ExportError
from convert.stages.export import export_graph
from convert.stages.load import load_model
from convert.torch_symbolics import mended_symbolics
from convert.values import ExportOptions, LoadOptions, OnnxGraph

PADDING = torch.tensor([[0.0, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1]])
FUTURE = torch.triu(torch.ones(6, 6, dtype=torch.bool), 1)
jit: Any = torch.jit


class Attend(nn.Module):
    """Attention of a tensor to itself; a second input hides keys where it is not zero."""

    def __init__(self, *, hides: torch.Tensor | None = None, **options: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True)
        self.hides, self.options = hides, options

    def forward(self, x: torch.Tensor, *padding: torch.Tensor) -> Any:
        hidden = padding[0] > 0 if padding else None
        made = self.attention(x, x, x, key_padding_mask=hidden, attn_mask=self.hides, **self.options)
        return made if made[1] is not None else made[0]


class Encode(nn.Module):
    """A stack whose fast path makes a nested tensor of what is not padding."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2)

    def forward(self, x: torch.Tensor, padding: torch.Tensor) -> Any:
        return self.stack(x, src_key_padding_mask=padding > 0)


def layer(**options: Any) -> nn.Module:
    return nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, **options)


def decoder() -> nn.Module:
    return nn.TransformerDecoder(nn.TransformerDecoderLayer(16, 2, 32, batch_first=True), 1)


MODELS: dict[str, tuple[Callable[[], nn.Module], int, str]] = {
    "attention": (Attend, 1, "_native_multi_head_attention"),
    "attention without weights": (lambda: Attend(need_weights=False), 1, "_native_multi_head_attention"),
    "attention with the weights of each head": (
        lambda: Attend(average_attn_weights=False),
        1,
        "_native_multi_head_attention",
    ),
    "attention with padding": (Attend, 2, "_native_multi_head_attention"),
    "attention that does not look ahead": (
        lambda: Attend(hides=FUTURE, need_weights=False),
        1,
        "_native_multi_head_attention",
    ),
    "attention with both": (lambda: Attend(hides=FUTURE, need_weights=False), 2, "_native_multi_head_attention"),
    "layer": (layer, 1, "_transformer_encoder_layer_fwd"),
    "layer that norms first": (lambda: layer(norm_first=True), 1, "_transformer_encoder_layer_fwd"),
    "layer with gelu": (lambda: layer(activation="gelu"), 1, "_transformer_encoder_layer_fwd"),
    "layer in float64": (lambda: layer().double(), 1, "_transformer_encoder_layer_fwd"),
    "stack with padding": (Encode, 2, "_nested_tensor_from_mask"),
    "decoder": (decoder, 2, "_native_multi_head_attention"),
}


def inputs_of(name: str, count: int) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    dtype = torch.float64 if "float64" in name else torch.float32
    second = torch.randn(2, 5, 16) if name == "decoder" else PADDING
    return (torch.randn(2, 6, 16, dtype=dtype), second)[:count]


def traced(name: str, path: Path, *, gradients: bool) -> tuple[Any, tuple[torch.Tensor, ...]]:
    make, count, _ = MODELS[name]
    torch.manual_seed(0)
    model, inputs = make().eval(), inputs_of(name, count)
    with warnings.catch_warnings(), torch.set_grad_enabled(gradients):
        warnings.simplefilter("ignore")
        jit.trace(model, inputs, check_trace=False).save(path)
        return jit.load(path).eval(), inputs


def compared(script: Any, inputs: tuple[torch.Tensor, ...], opset: int) -> None:
    """Export with a batch of any size, and compare at the traced one and at another."""
    memory = io.BytesIO()
    names = ["x", "y"][: len(inputs)]
    with warnings.catch_warnings(), torch.no_grad(), mended_symbolics():
        warnings.simplefilter("ignore")
        axes = {name: {0: "N"} for name in names}
        torch.onnx.export(
            script, inputs, memory, dynamo=False, opset_version=opset, input_names=names, dynamic_axes=axes
        )
    session = onnxruntime.InferenceSession(memory.getvalue(), providers=["CPUExecutionProvider"])
    for feed in (inputs, tuple(torch.cat([item, item.flip(0), item]) for item in inputs)):
        with torch.no_grad():
            wanted = script(*feed)
        given = session.run(None, {name: item.numpy() for name, item in zip(names, feed, strict=True)})
        for one, other in zip(given, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            np.testing.assert_allclose(one, other.numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("opset", [14, 17])
@pytest.mark.parametrize("name", MODELS)
def test_the_fast_path_is_exported_with_its_numbers(name: str, opset: int, tmp_path: Path) -> None:
    script, inputs = traced(name, tmp_path / "m.pt", gradients=False)
    assert f"aten::{MODELS[name][2]}" in str(script.inlined_graph)
    compared(script, inputs, opset)


@pytest.mark.parametrize("name", ["attention", "attention with padding", "layer", "decoder"])
def test_a_trace_with_gradients_is_exported_too(name: str, tmp_path: Path) -> None:
    script, inputs = traced(name, tmp_path / "m.pt", gradients=True)
    assert "aten::unflatten" in str(script.inlined_graph)
    compared(script, inputs, 17)


def exported(path: Path, inputs: tuple[torch.Tensor, ...], folder: Path) -> OnnxGraph:
    torch.save((inputs, {}), folder / "samples.pt")
    source = LoadOptions(path=str(path), samples=str(folder / "samples.pt"))
    for name in ("loaded", "graph"):
        (folder / name).mkdir()
    loaded = load_model(source, folder / "loaded")
    return export_graph(loaded, source, ExportOptions(), folder / "graph")


def test_what_the_exporter_refuses_goes_through_as_a_program(tmp_path: Path) -> None:
    class Tail(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.interpolate(x, size=(5, 5), mode="bicubic", antialias=True)

    inputs = (torch.rand(1, 2, 9, 9),)
    jit.trace(Tail(), inputs).save(tmp_path / "m.pt")
    graph = exported(tmp_path / "m.pt", inputs, tmp_path)
    assert [(one.exporter, one.state) for one in graph.exporters][:2] == [
        ("torchscript", "failed"),
        ("dynamo (of the model as a program)", "chosen"),
    ]
    assert any("fell back to the dynamo (of the model as a program) exporter" in note.text for note in graph.notes)


def test_a_failed_export_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    # A script with arguments left out is wrapped and traced; the exporter then turned dropout on in it, and the model
    # itself was blamed for giving another answer.
    path = tmp_path / "m.pt"
    jit.script(layer().eval()).save(path)
    with pytest.raises(ExportError, match="torchscript") as refusal:
        exported(path, (torch.rand(1, 3, 16),), tmp_path)
    assert refusal.value.code == "CNV-4001"
