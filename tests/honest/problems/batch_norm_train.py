"""Batch normalisation in training mode, as most published problems have it: the batch's own statistics decide."""

import torch
from torch import nn

BATCH = 64
CHANNELS = 64
SIDE = 128
SIZES = {
    "gpu": {"BATCH": 64, "CHANNELS": 64, "SIDE": 128},
    "cpu": {"BATCH": 8, "CHANNELS": 24, "SIDE": 31},
}


class Model(nn.Module):
    """y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, mean and variance taken over each channel."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, SIDE, SIDE) to y of the same shape."""
        return self.norm(x)


def get_inputs():
    return [2.0 * torch.randn(BATCH, CHANNELS, SIDE, SIDE) + 0.5]


def get_init_inputs():
    return [CHANNELS]
