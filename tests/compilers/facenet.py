"""The three networks of facenet-pytorch's face detector (MTCNN), for its state_dicts: a factory for each.

The layers are those of facenet-pytorch 2.6.0 (MIT), which does not import beside the CPU build of torch.
"""

from __future__ import annotations

import torch
from torch import nn


class Trunk(nn.Module):
    """Convolutions with PReLU, and pools between them. ``layers``: (channels in, out, kernel, pool kernel or 0)."""

    def __init__(self, layers: list[tuple[int, int, int, int]]) -> None:
        super().__init__()
        self.order: list[str] = []
        for number, (inputs, outputs, kernel, pool) in enumerate(layers, 1):
            parts = {f"conv{number}": nn.Conv2d(inputs, outputs, kernel), f"prelu{number}": nn.PReLU(outputs)}
            if pool:
                parts[f"pool{number}"] = nn.MaxPool2d(pool, 2, ceil_mode=True)
            for name, part in parts.items():
                self.add_module(name, part)
                self.order.append(name)

    def trunk(self, x: torch.Tensor) -> torch.Tensor:
        """All of it, in order."""
        for name in self.order:
            x = self.get_submodule(name)(x)
        return x


class PNet(Trunk):
    """Proposals: boxes and probabilities for every place of the picture."""

    def __init__(self) -> None:
        super().__init__([(3, 10, 3, 2), (10, 16, 3, 0), (16, 32, 3, 0)])
        self.conv4_1, self.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.trunk(x)
        return self.conv4_2(x), self.conv4_1(x).softmax(1)


class RNet(Trunk):
    """Refinement of the boxes, 24x24 pixels each."""

    def __init__(self) -> None:
        super().__init__([(3, 28, 3, 3), (28, 48, 3, 3), (48, 64, 2, 0)])
        self.dense4, self.prelu4 = nn.Linear(576, 128), nn.PReLU(128)
        self.dense5_1, self.dense5_2 = nn.Linear(128, 2), nn.Linear(128, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.trunk(x).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu4(self.dense4(x))
        return self.dense5_2(x), self.dense5_1(x).softmax(1)


class ONet(Trunk):
    """The last word, with five points of the face, 48x48 pixels each."""

    def __init__(self) -> None:
        super().__init__([(3, 32, 3, 3), (32, 64, 3, 3), (64, 64, 3, 2), (64, 128, 2, 0)])
        self.dense5, self.prelu5 = nn.Linear(1152, 256), nn.PReLU(256)
        self.dense6_1, self.dense6_2, self.dense6_3 = nn.Linear(256, 2), nn.Linear(256, 4), nn.Linear(256, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        x = self.trunk(x).permute(0, 3, 2, 1).flatten(1)
        x = self.prelu5(self.dense5(x))
        return self.dense6_2(x), self.dense6_3(x), self.dense6_1(x).softmax(1)
