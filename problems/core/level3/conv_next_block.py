"""A ConvNeXt block: 7 x 7 by channel, layer normalisation, an MLP on channels, a scale, a residual.

Category: architecture.
The depthwise part wants channels apart, the normalisation and the MLP want them together, so that the tensor changes
its order twice; the MLP's hidden tensor is four times as large. In channels-last order all of it can be one chain.
Bound: 0.135 GB, 0.036 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS = 128
HEIGHT = 64
WIDTH = 64
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS": 128, "HEIGHT": 64, "WIDTH": 64},
    "cpu": {"BATCH": 2, "CHANNELS": 32, "HEIGHT": 20, "WIDTH": 20},
}


class Model(nn.Module):
    """y = x + scale * down(gelu(up(norm(depthwise(x)))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, kernel_size=7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels)
        self.up = nn.Linear(channels, 4 * channels)
        self.down = nn.Linear(4 * channels, channels)
        self.scale = nn.Parameter(0.5 + torch.rand(channels))
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)
        nn.init.normal_(self.down.weight, std=1.0 / channels**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y of the same shape."""
        h = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        h = self.scale * self.down(F.gelu(self.up(h)))
        y: torch.Tensor = x + h.permute(0, 3, 1, 2)
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
