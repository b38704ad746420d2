"""ResNet-18 as TorchScript: writing the model, and the bare sequence of library calls that conversions are held to.

``python benchmarks/resnet.py write FILE`` and ``python benchmarks/resnet.py bare FILE FOLDER``.
"""

from __future__ import annotations

import sys
from pathlib import Path


def write(path: Path) -> None:
    """An untrained ResNet-18 (He et al. 2015: 11.7 million parameters), traced at 1×3×224×224."""
    import torch
    from torch import nn

    class Block(nn.Module):
        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.main = nn.Sequential(
                nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outputs),
                nn.ReLU(),
                nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False),
                nn.BatchNorm2d(outputs),
            )
            short = [nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)]
            self.short = nn.Sequential(*short) if stride != 1 or inputs != outputs else nn.Identity()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.main(x) + self.short(x))

    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()]
    layers.append(nn.MaxPool2d(3, 2, 1))
    width = 64
    for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(width, outputs, stride), Block(outputs, outputs, 1)]
        width = outputs
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    model = nn.Sequential(*layers).eval()
    torch.jit.save(torch.jit.trace(model, torch.rand(1, 3, 224, 224)), str(path))


def bare(path: Path, folder: Path) -> None:
    """Load, export, simplify, two sessions, comparison: what somebody's script does who trusts everything."""
    import numpy as np
    import onnx
    import onnxruntime
    import onnxsim
    import torch

    model = torch.jit.load(str(path)).eval()
    image = torch.rand(1, 3, 224, 224)
    exported, simplified = str(folder / "exported.onnx"), str(folder / "simplified.onnx")
    torch.onnx.export(model, (image,), exported, dynamo=False, input_names=["x"], opset_version=17)
    graph, _ = onnxsim.simplify(onnx.load(exported))
    onnx.save(graph, simplified)
    feed = {"x": image.numpy()}
    first = onnxruntime.InferenceSession(exported).run(None, feed)[0]
    second = onnxruntime.InferenceSession(simplified).run(None, feed)[0]
    with torch.no_grad():
        reference = model(image).numpy()
    assert np.allclose(first, second, atol=1e-4)
    assert np.allclose(first, reference, atol=1e-3)


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]))
    else:
        bare(Path(sys.argv[2]), Path(sys.argv[3]))
