"""The trained models that ``scripts/trained-models`` fetches: how a user would load each, and its simplified graph."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from convert.stages.export import export_graph
from convert.stages.load import load_model
from convert.stages.simplify import simplify_graph
from convert.values import ExportOptions, LoadOptions, OnnxGraph, SimplifyOptions

FACES = Path(__file__).with_name("face_nets.py")
RNG = np.random.default_rng(7)
SOUND = RNG.standard_normal((1, 576), dtype=np.float32) * np.float32(0.1)
STATE, RATE = np.zeros((2, 1, 128), np.float32), np.array(16000)
BYTES = RNG.integers(0, 256, (2, 2048), dtype=np.int32)


@dataclass(frozen=True)
class Trained:
    """One model: its file, the samples where random ones mean nothing, and what its signature leaves open."""

    file: str
    samples: dict[str, Any] = field(default_factory=dict)
    dims: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    factory: str = ""


ONE = ("batch=1", "sequence=576")
MODELS: dict[str, Trained] = {
    "silero": Trained("silero.pt", {"x": SOUND, "state": STATE}),
    "silero-if": Trained(
        "silero_vad-silero_vad.onnx",
        {"input": SOUND, "state": STATE, "sr": RATE},
        dims=("input_0=1", "input_1=576", "state_1=1"),
    ),
    "silero-16k": Trained(
        "silero_vad-silero_vad_16k_op15.onnx", {"input": SOUND, "state": STATE, "sr": RATE}, dims=ONE
    ),
    "silero-half": Trained("silero_vad-silero_vad_half.onnx", {"input": SOUND, "state": STATE}, dims=ONE),
    "silero-ifless": Trained(
        "silero_vad-silero_vad_op18_ifless.onnx", {"input": SOUND, "state": STATE, "sr": RATE}, dims=ONE
    ),
    "silero-openvino": Trained("silero_vad-silero_vad_openvino_16k.onnx", {"input": SOUND, "state": STATE}),
    "silero-sequence": Trained("silero_vad-silero_vad_16k_sequence.onnx", dims=("sequence_length=4",)),
    "pnet": Trained("facenet_pytorch-pnet.pt", inputs=("x:float32[1,3,48,48]",), factory=f"{FACES}:pnet"),
    "rnet": Trained("facenet_pytorch-rnet.pt", inputs=("x:float32[1,3,24,24]",), factory=f"{FACES}:rnet"),
    "onet": Trained("facenet_pytorch-onet.pt", inputs=("x:float32[1,3,48,48]",), factory=f"{FACES}:onet"),
    "magika": Trained("magika-model.onnx", {"bytes": BYTES}, dims=("unk__214=2",)),
    "basic-pitch": Trained("basic_pitch-nmp.onnx", dims=("unk__749=1",)),
}


def load_options(name: str, models: Path, folder: Path) -> LoadOptions:
    """What a user would say to load a model; samples and what must be cut out of a file lie in ``folder``."""
    model = MODELS[name]
    path = models / model.file
    if name == "silero":
        path = folder / model.file
        _stateless(models / "silero_vad-silero_vad.jit", path)
    samples = folder / f"{name}.npz"
    if model.samples:
        np.savez(samples, **model.samples)
    return LoadOptions(
        path=str(path),
        samples=str(samples) if model.samples else "",
        inputs=model.inputs,
        dims=model.dims,
        factory=model.factory,
    )


def _stateless(source: Path, path: Path) -> None:
    """The inner model of silero's file, which takes its state and gives it back."""
    import torch

    torch.jit.save(torch.jit.load(str(source))._model, str(path))


def graph_of(name: str, models: Path, folder: Path) -> OnnxGraph:
    """Load, export and simplify one model in this process."""
    for stage in ("load", "export", "simplify"):
        (folder / stage).mkdir(parents=True)
    source = load_options(name, models, folder)
    exported = export_graph(load_model(source, folder / "load"), source, ExportOptions(), folder / "export")
    return simplify_graph(exported, SimplifyOptions(), folder / "simplify")
