"""A 3x3 convolution and batch normalisation in evaluation mode: running statistics are buffers that must be used."""

import torch
from torch import nn

BATCH = 64
CHANNELS_IN = 64
CHANNELS_OUT = 128
SIDE = 64
SIZES = {
    "gpu": {"BATCH": 64, "CHANNELS_IN": 64, "CHANNELS_OUT": 128, "SIDE": 64},
    "cpu": {"BATCH": 4, "CHANNELS_IN": 16, "CHANNELS_OUT": 24, "SIDE": 28},
}


class Model(nn.Module):
    """y = relu(norm(conv(x))), the normalisation by running statistics that are neither zero nor one."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.norm = nn.BatchNorm2d(channels_out)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)
        nn.init.normal_(self.norm.running_mean, std=0.2)
        nn.init.uniform_(self.norm.running_var, 0.5, 1.5)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, SIDE, SIDE) to y (BATCH, CHANNELS_OUT, SIDE, SIDE)."""
        return torch.relu(self.norm(self.conv(x)))


def get_inputs():
    return [0.3 * torch.randn(BATCH, CHANNELS_IN, SIDE, SIDE)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
