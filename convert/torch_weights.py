"""torch's TorchScript exporter without its copies of the weights (worker only, imports torch).

The exporter writes all weights into a protobuf message, that into a string, and that into a file: three copies beside
the model's own. Here it is asked for a graph without weights; these are taken from the pass that it runs last on them
(constants folded, duplicates gone) and written into a file of their own, one after another.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto, TensorProto

from convert.bigmodel import ALIGN, refer
from convert.inline import REFERRED_FROM

FILE = "weights"
LAST_PASS = "_jit_pass_onnx_deduplicate_initializers"
"""What the exporter calls with the graph and a dict of its weights right before it writes them (torch 1.10 to 2.13)."""
_native: Any = torch._C


def able() -> bool:
    """Whether this torch has the pass that weights are taken from."""
    return hasattr(_native, LAST_PASS)


def export_apart(export: Callable[..., Any], folder: Path) -> ModelProto:
    """Run ``export(file, export_params)``; the graph's weights then are references to ``folder/weights``.

    Raises :class:`LookupError` where the weights were not handed over as expected.
    """
    memory = io.BytesIO()
    with _handed_over() as weights:
        export(memory, export_params=False)
    proto: ModelProto = ModelProto.FromString(memory.getvalue())
    _attach(proto, weights, folder / FILE)
    return proto


@contextlib.contextmanager
def _handed_over() -> Iterator[dict[str, torch.Tensor]]:
    """Collects what the exporter's last pass over the weights gives, while the block runs."""
    own = getattr(_native, LAST_PASS)
    found: dict[str, torch.Tensor] = {}

    def last_pass(graph: Any, weights: dict[str, torch.Tensor], training: bool) -> dict[str, torch.Tensor]:
        kept: dict[str, torch.Tensor] = own(graph, weights, training)
        found.clear()
        found.update(kept)
        return kept

    setattr(_native, LAST_PASS, last_pass)
    try:
        yield found
    finally:
        setattr(_native, LAST_PASS, own)


def _attach(proto: ModelProto, weights: dict[str, torch.Tensor], data: Path) -> None:
    """Turn the inputs that are weights into initializers, in their order, as the exporter itself would."""
    types = {value.name: value.type.tensor_type.elem_type for value in proto.graph.input}
    odd = sorted(name for name, tensor in weights.items() if name not in types or tensor.is_quantized)
    if odd or not weights:
        raise LookupError(f"the exporter did not hand over plain weights: {', '.join(odd) or 'none at all'}")
    kept = [value for value in proto.graph.input if value.name not in weights]
    inputs = [type(value).FromString(value.SerializeToString()) for value in kept]
    del proto.graph.input[:]
    proto.graph.input.extend(inputs)
    with data.open("wb") as stream:
        for name in [name for name in types if name in weights]:
            tensor = weights.pop(name).detach().cpu().contiguous()
            made = TensorProto(name=name, data_type=types[name], dims=list(tensor.shape))
            raw: Any = tensor.reshape(-1).view(torch.uint8).numpy()
            if raw.nbytes < REFERRED_FROM:
                made.raw_data = raw.tobytes()
            else:
                stream.write(b"\0" * (-stream.tell() % ALIGN))
                refer(made, data.name, stream.tell(), raw.nbytes)
                stream.write(raw)
            proto.graph.initializer.append(made)
