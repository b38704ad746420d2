"""The three networks of MTCNN (Zhang et al. 2016, arXiv:1604.02878), named as facenet-pytorch's weights are."""

from __future__ import annotations

import torch
from torch import nn


class FaceNet(nn.Module):
    """Convolutions and poolings one after the other, a wide layer but in the first net, and two or three heads."""

    def __init__(
        self, channels: tuple[int, ...], kernels: tuple[int, ...], pools: tuple[int, ...], wide: tuple[int, int] | None
    ) -> None:
        super().__init__()
        self.pools = pools
        ways = zip((3, *channels), channels, kernels, strict=False)
        for number, (given, made, kernel) in enumerate(ways, start=1):
            setattr(self, f"conv{number}", nn.Conv2d(given, made, kernel))
            setattr(self, f"prelu{number}", nn.PReLU(made))
        self.depth = len(channels) + 1
        if wide is not None:
            setattr(self, f"dense{self.depth}", nn.Linear(*wide))
            setattr(self, f"prelu{self.depth}", nn.PReLU(wide[1]))

    def heads(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The heads, the class as probabilities behind the others."""
        found = [head(x) for name, head in self.named_children() if "_" in name]
        return (*found[1:], torch.softmax(found[0], dim=1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        layers = dict(self.named_children())
        for number in range(1, self.depth):
            x = layers[f"prelu{number}"](layers[f"conv{number}"](x))
            if pool := self.pools[number - 1]:
                x = torch.max_pool2d(x, pool, 2, ceil_mode=True)
        if f"dense{self.depth}" in layers:
            x = x.permute(0, 3, 2, 1).contiguous()
            x = layers[f"prelu{self.depth}"](layers[f"dense{self.depth}"](x.view(x.shape[0], -1)))
        return self.heads(x)


def pnet() -> nn.Module:
    """Proposals: fully convolutional, for images of any size."""
    net = FaceNet((10, 16, 32), (3, 3, 3), (2, 0, 0), None)
    net.conv4_1, net.conv4_2 = nn.Conv2d(32, 2, 1), nn.Conv2d(32, 4, 1)
    return net


def rnet() -> nn.Module:
    """Refinement, for crops of 24."""
    net = FaceNet((28, 48, 64), (3, 3, 2), (3, 3, 0), (576, 128))
    net.dense5_1, net.dense5_2 = nn.Linear(128, 2), nn.Linear(128, 4)
    return net


def onet() -> nn.Module:
    """Output with landmarks, for crops of 48."""
    net = FaceNet((32, 64, 64, 128), (3, 3, 3, 2), (3, 3, 2, 0), (1152, 256))
    net.dense6_1, net.dense6_2, net.dense6_3 = nn.Linear(256, 2), nn.Linear(256, 4), nn.Linear(256, 10)
    return net
