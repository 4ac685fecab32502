"""Three levels of a feature pyramid: lateral projections, sums with the level above made larger, smoothing.

Category: architecture.
Each sum reads a quarter-sized map four times over, which needs no copy; the lateral product can add it in its epilogue
and the 3 x 3 convolution read it from there. The three sizes make uneven work.
Bound: 0.414 GB, 0.0769 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS = 128
WIDTH_OUT = 96
SIZE = 96
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS": 128, "WIDTH_OUT": 96, "SIZE": 96},
    "cpu": {"BATCH": 1, "CHANNELS": 16, "WIDTH_OUT": 16, "SIZE": 24},
}


class Model(nn.Module):
    """top = a(x3); middle = b(x2) + twice(top); bottom = c(x1) + twice(middle); each is smoothed by a convolution."""

    def __init__(self, channels: int, width_out: int) -> None:
        super().__init__()
        self.laterals = nn.ModuleList([nn.Conv2d(channels * 2**i, width_out, kernel_size=1) for i in range(3)])
        self.smooth = nn.ModuleList([nn.Conv2d(width_out, width_out, kernel_size=3, padding=1) for _ in range(3)])
        for layer in (*self.laterals, *self.smooth):
            nn.init.normal_(layer.weight, std=1.0 / layer.weight[0].numel() ** 0.5)

    def forward(
        self, x1: torch.Tensor, x2: torch.Tensor, x3: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Maps maps of SIZE, SIZE / 2 and SIZE / 4 to as many of WIDTH_OUT channels."""
        top = self.laterals[2](x3)
        middle = self.laterals[1](x2) + F.interpolate(top, scale_factor=2.0, mode="nearest")
        bottom = self.laterals[0](x1) + F.interpolate(middle, scale_factor=2.0, mode="nearest")
        return self.smooth[0](bottom), self.smooth[1](middle), self.smooth[2](top)


def get_inputs() -> list[torch.Tensor]:
    return [
        0.7 * torch.randn(BATCH, CHANNELS, SIZE, SIZE),
        0.7 * torch.randn(BATCH, 2 * CHANNELS, SIZE // 2, SIZE // 2),
        0.7 * torch.randn(BATCH, 4 * CHANNELS, SIZE // 4, SIZE // 4),
    ]


def get_init_inputs() -> list[int]:
    return [CHANNELS, WIDTH_OUT]
