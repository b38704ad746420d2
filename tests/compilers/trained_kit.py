"""The trained models that the compilers are tried with: their files, words of the command, and fitting samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FACENET = Path(__file__).with_name("facenet.py")
SAMPLES, CALIBRATION = 4, 16
MODELS: dict[str, tuple[str, ...]] = {
    "magika": ("magika-model.onnx", "--dim", "unk__214=1"),
    "basic_pitch": ("basic_pitch-nmp.onnx", "--dim", "unk__749=1"),
    "silero": ("silero.pt",),
    "silero_if": ("silero_vad-silero_vad.onnx", "--dim", "input_0=1", "--dim", "input_1=576", "--dim", "state_1=1"),
    "silero_16k": ("silero_vad-silero_vad_16k_op15.onnx", "--dim", "batch=1", "--dim", "sequence=576"),
    "silero_half": ("silero_vad-silero_vad_half.onnx", "--dim", "batch=1", "--dim", "sequence=576"),
    "silero_ifless": ("silero_vad-silero_vad_op18_ifless.onnx", "--dim", "batch=1", "--dim", "sequence=576"),
    "silero_openvino": ("silero_vad-silero_vad_openvino_16k.onnx",),
    "silero_sequence": ("silero_vad-silero_vad_16k_sequence.onnx", "--dim", "sequence_length=4"),
    "pnet": ("facenet_pytorch-pnet.pt", "--factory", f"{FACENET}:PNet"),
    "rnet": ("facenet_pytorch-rnet.pt", "--factory", f"{FACENET}:RNet"),
    "onet": ("facenet_pytorch-onet.pt", "--factory", f"{FACENET}:ONet"),
}
"""Each model's file in the folder of trained models (silero's is made of it), and what the command must know of it."""
PIXELS = {"pnet": 48, "rnet": 24, "onet": 48}


def words_for(name: str, trained: Path, folder: Path) -> tuple[str, ...]:
    """The model's file and its options, with samples and data to calibrate with, which are written into ``folder``."""
    file, *more = MODELS[name]
    if name == "silero":
        make_silero(trained, folder / file)
    place = folder / file if name == "silero" else trained / file
    for part, seed, count in (("samples", 0, SAMPLES), ("calibration", 1, CALIBRATION)):
        (folder / name / part).mkdir(parents=True, exist_ok=True)
        for number, arrays in zip(range(count), feeds(name, seed), strict=False):
            np.savez(folder / name / part / f"{number:02d}.npz", **arrays)
    given = ("--samples", str(folder / name / "samples"), "--calibration", str(folder / name / "calibration"))
    return (str(place), *more, *given, "--name", name.replace("_", "-"))


def make_silero(trained: Path, path: Path) -> None:
    """The stateless network inside silero-vad's TorchScript archive, as a file of its own."""
    import torch

    whole = torch.jit.load(str(trained / "silero_vad-silero_vad.jit"))
    torch.jit.save(whole._model, str(path))


def feeds(name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Inputs without end, like those that the model was trained for; another seed gives others."""
    rng = np.random.default_rng(seed)
    while True:
        if name == "magika":
            yield {"bytes": text(rng)}
        elif name == "basic_pitch":
            yield {"serving_default_input_2:0": sound(rng, 43844)[None, :, None]}
        elif name.startswith("silero"):
            yield speech(rng, name)
        else:
            yield {"x": face(rng, PIXELS[name])}


WITH_RATE = ("silero_if", "silero_16k", "silero_ifless")
"""Of silero's files those that ask for the sampling rate, too, to choose between two networks."""


def speech(rng: np.random.Generator, name: str) -> dict[str, Any]:
    """A piece of sound with the state before it, as each of silero's files names and shapes them."""
    state = rng.normal(0, 0.3, (2, 1, 128)).astype(np.float32)
    if name == "silero_sequence":
        pieces = np.stack([sound(rng, 576) for _ in range(4)])
        return {"input": pieces, "h": state[:1], "c": state[1:]}
    rate = {"sr": np.array(16000)} if name in WITH_RATE else {}
    return {"x" if name == "silero" else "input": sound(rng, 576)[None], "state": state, **rate}


TEXTS = (
    "def {0}({1}):\n    return {1} + {2}\n",
    "<html><body><p class='{0}'>{1}</p></body></html>\n",
    '{{"{0}": [{2}, {2}], "{1}": null}}\n',
    "#include <{0}.h>\nint {1}(void) {{ return {2}; }}\n",
    "SELECT {0}, {1} FROM {0}s WHERE id = {2};\n",
    "{0} and {1} went for a walk, {2} miles long, and came home late.\n",
)


def text(rng: np.random.Generator) -> Any:
    """A file of text as magika sees it: its first and last 1,024 bytes, padded with 256; each sample another kind."""
    names = ["".join(rng.choice(list("abcdefgh"), 6)) for _ in range(2)]
    lines = [TEXTS[rng.integers(len(TEXTS))].format(*names, rng.integers(999)) for _ in range(1)] * 40
    codes = np.frombuffer("".join(lines).encode(), np.uint8).astype(np.int32)
    begin, end = np.full(1024, 256, np.int32), np.full(1024, 256, np.int32)
    begin[: len(codes[:1024])] = codes[:1024]
    end[1024 - len(codes[-1024:]) :] = codes[-1024:]
    return np.concatenate([begin, end])[None]


def sound(rng: np.random.Generator, length: int) -> Any:
    """A struck note with five overtones, and a little noise, float32 within -1..1."""
    time = np.arange(length) / 22050
    note = 110 * 2 ** (rng.integers(0, 36) / 12)
    tones = sum(np.sin(2 * np.pi * note * k * time) / k for k in range(1, 6))
    return (0.3 * tones * np.exp(-3 * (time % 0.5)) + 0.003 * rng.normal(size=length)).astype(np.float32)


def face(rng: np.random.Generator, pixels: int) -> Any:
    """A drawn face: an oval with eyes and a mouth on a shaded ground, as the detector scales pictures, -1..1."""
    y, x = (np.mgrid[:pixels, :pixels] / pixels - 0.5) * rng.uniform(1.6, 2.4)
    x, y = x + rng.uniform(-0.1, 0.1), y + rng.uniform(-0.1, 0.1)

    def oval(cx: float, cy: float, rx: float, ry: float) -> Any:
        return 1 / (1 + np.exp((20 * (((x - cx) / rx) ** 2 + ((y - cy) / ry) ** 2 - 1)).clip(-40, 40)))

    light = rng.uniform(0.1, 0.5) + 0.3 * x + rng.uniform(0.3, 0.6) * oval(0, 0, 0.45, 0.6)
    for cx in (-0.18, 0.18):
        light = light - 0.5 * oval(cx, -0.12, 0.08, 0.05)
    light = light - 0.4 * oval(0, 0.28, 0.18, 0.05)
    colors = np.stack([light * tint for tint in (1.0, rng.uniform(0.75, 0.9), rng.uniform(0.6, 0.8))])
    noisy = colors + 0.02 * rng.normal(size=colors.shape)
    return (2 * noisy.clip(0, 1) - 1)[None].astype(np.float32)
