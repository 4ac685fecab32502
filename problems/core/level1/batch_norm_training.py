"""Batch normalisation with the batch's own statistics.

Category: normalisation.
Mean and variance of a channel run over the batch and both image axes, so that every block contributes to every
channel's statistics: two grid-wide reductions before the first output can be written. Numerically the variance must not
be taken as a difference of large numbers.
Bound: 1.07 GB.
"""

import torch
from torch import nn

BATCH = 64
CHANNELS = 128
HEIGHT = 128
WIDTH = 128
SIZES = {
    "gpu": {"BATCH": 64, "CHANNELS": 128, "HEIGHT": 128, "WIDTH": 128},
    "cpu": {"BATCH": 8, "CHANNELS": 16, "HEIGHT": 48, "WIDTH": 48},
}


class Model(nn.Module):
    """Each channel to mean 0 and variance 1 over the batch, then a scale and a shift."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 + torch.rand(channels))
        self.bias = nn.Parameter(0.3 * torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y of the same shape."""
        variance, mean = torch.var_mean(x, dim=(0, 2, 3), keepdim=True, correction=0)
        scale = self.weight.view(1, -1, 1, 1) * torch.rsqrt(variance + 1e-5)
        return (x - mean) * scale + self.bias.view(1, -1, 1, 1)


def get_inputs() -> list[torch.Tensor]:
    spread = 0.5 + 1.5 * torch.rand(1, CHANNELS, 1, 1)
    return [spread * torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) + torch.randn(1, CHANNELS, 1, 1)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
