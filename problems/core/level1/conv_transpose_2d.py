"""A transposed convolution that doubles height and width.

Category: convolution.
With a stride of two and a filter of 4 x 4 each output is a sum over four taps, which four depend on whether row and
column are even: four interleaved convolutions. Done as a scatter it writes every output several times.
Bound: 0.906 GB, 0.155 TFLOP.
"""

import torch
from torch import nn

BATCH = 64
CHANNELS_IN = 128
CHANNELS_OUT = 64
HEIGHT = 96
WIDTH = 96
SIZES = {
    "gpu": {"BATCH": 64, "CHANNELS_IN": 128, "CHANNELS_OUT": 64, "HEIGHT": 96, "WIDTH": 96},
    "cpu": {"BATCH": 2, "CHANNELS_IN": 16, "CHANNELS_OUT": 16, "HEIGHT": 32, "WIDTH": 32},
}


class Model(nn.Module):
    """A transposed convolution with stride 2, filters of 4 x 4 and padding 1."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels_in, channels_out, kernel_size=4, stride=2, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, HEIGHT, WIDTH) to y (BATCH, CHANNELS_OUT, 2 * HEIGHT, 2 * WIDTH)."""
        y: torch.Tensor = self.conv(x)
        return y


def get_inputs() -> list[torch.Tensor]:
    return [2.0 * torch.randn(BATCH, CHANNELS_IN, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS_IN, CHANNELS_OUT]
