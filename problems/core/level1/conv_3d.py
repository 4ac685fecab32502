"""A 3 x 3 x 3 convolution of volumes.

Category: convolution.
27 taps and channel counts (24 to 48) that fill no tile evenly: an implicit matrix product with an inner dimension of
648, whose addresses run over five axes. The volume's halo is large beside a tile.
Bound: 1.39 GB, 0.3 TFLOP.
"""

import torch
from torch import nn

BATCH = 8
CHANNELS_IN = 24
CHANNELS_OUT = 48
DEPTH = 48
HEIGHT = 112
WIDTH = 112
SIZES = {
    "gpu": {"BATCH": 8, "CHANNELS_IN": 24, "CHANNELS_OUT": 48, "DEPTH": 48, "HEIGHT": 112, "WIDTH": 112},
    "cpu": {"BATCH": 1, "CHANNELS_IN": 8, "CHANNELS_OUT": 16, "DEPTH": 16, "HEIGHT": 24, "WIDTH": 24},
}


class Model(nn.Module):
    """A convolution padded by one, so that depth, height and width stay."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(channels_in, channels_out, kernel_size=3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, DEPTH, HEIGHT, WIDTH) to y (BATCH, CHANNELS_OUT, DEPTH, HEIGHT, WIDTH)."""
        y: torch.Tensor = self.conv(x)
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS_IN, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS_IN, CHANNELS_OUT]
