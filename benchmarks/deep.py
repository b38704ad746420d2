"""A transformer of 48 blocks (156 MB), and the bare library calls that conversions of it are held to.

``python benchmarks/deep.py write FOLDER [BLOCKS]``   ``deep.pt`` (TorchScript)
``python benchmarks/deep.py export FILE ONNX``        the legacy exporter alone, on the TorchScript file
``python benchmarks/deep.py simplify ONNX ONNX``      onnxsim alone
``python benchmarks/deep.py compare ONNX ONNX``       both on ONNX Runtime on one image: the largest difference
Needs torch, onnx, onnxruntime and onnxsim only, so that it runs in an environment without this project.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

WIDTH, HEADS, BLOCKS, SIDE = 256, 8, 48, 32
OPSET = 17


class Block(nn.Module):
    """Pre-norm attention and a feed-forward part."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, _ = x.shape
        parts = self.qkv(self.norm1(x)).reshape(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(parts[0], parts[1], parts[2])
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Deep(nn.Module):
    """A convolution that cuts an image into patches, the blocks, and a head."""

    def __init__(self, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, WIDTH, 4, 4)
        self.blocks = nn.Sequential(*(Block() for _ in range(blocks)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        return self.head(self.norm(self.blocks(tokens)).mean(1))


def make(blocks: int = BLOCKS) -> tuple[nn.Module, torch.Tensor]:
    """The untrained model and an image: two of them, so that the batch can be dynamic."""
    torch.manual_seed(0)
    return Deep(blocks).eval(), torch.rand(2, 3, SIDE, SIDE)


def write(folder: Path, blocks: int = BLOCKS) -> None:
    """The model as TorchScript."""
    model, image = make(blocks)
    with torch.inference_mode():
        torch.jit.save(torch.jit.trace(model, image), str(folder / "deep.pt"))


def export(path: Path, target: Path) -> None:
    """torch's legacy exporter."""
    model = torch.jit.load(str(path)).eval()
    image = torch.rand(2, 3, SIDE, SIDE)
    names = {"input_names": ["x"], "output_names": ["y"], "dynamic_axes": {"x": {0: "batch"}, "y": {0: "batch"}}}
    with torch.no_grad():
        torch.onnx.export(model, (image,), str(target), dynamo=False, opset_version=OPSET, **names)


def simplify(path: Path, target: Path) -> None:
    """onnxsim, as its own page shows it."""
    import onnx
    import onnxsim

    graph, _ = onnxsim.simplify(onnx.load(path))
    onnx.save(graph, target)


def compare(path: Path, other: Path) -> None:
    """Print the largest difference of two graphs' outputs on one image."""
    import numpy as np
    import onnxruntime

    feed = {"x": np.random.default_rng(0).random((2, 3, SIDE, SIDE), np.float32)}
    outputs = [
        onnxruntime.InferenceSession(str(each), providers=["CPUExecutionProvider"]).run(None, feed)[0]
        for each in (path, other)
    ]
    print(float(np.abs(outputs[0] - outputs[1]).max()))


if __name__ == "__main__":
    kind, first, *more = sys.argv[1:]
    if kind == "write":
        write(Path(first), *map(int, more))
    else:
        {"export": export, "simplify": simplify, "compare": compare}[kind](Path(first), Path(more[0]))
