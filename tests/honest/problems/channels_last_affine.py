"""Images whose channels lie next to each other in memory, and a scale and a shift for each channel."""

import torch
from torch import nn

BATCH = 64
CHANNELS = 96
SIDE = 112
SIZES = {"gpu": {"BATCH": 64, "CHANNELS": 96, "SIDE": 112}, "cpu": {"BATCH": 4, "CHANNELS": 30, "SIDE": 41}}


class Model(nn.Module):
    """y = x * scale + shift, for each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(channels, 1, 1))
        self.shift = nn.Parameter(torch.randn(channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, SIDE, SIDE), channels last in memory, to y of the same shape."""
        return x * self.scale + self.shift


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIDE, SIDE).contiguous(memory_format=torch.channels_last)]


def get_init_inputs():
    return [CHANNELS]
