"""A transposed convolution, a skip connection and a clamp to a range for each channel.

Category: fusion.
The transposed convolution without overlap is one matrix product whose rows are spread over a grid of 2 x 2; the skip
connection and the clamp belong into its epilogue, with bounds that depend on the channel.
Bound: 0.755 GB, 0.0193 TFLOP.
"""

import torch
from torch import nn

BATCH = 32
CHANNELS_IN = 128
CHANNELS_OUT = 64
HEIGHT = 96
WIDTH = 96
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS_IN": 128, "CHANNELS_OUT": 64, "HEIGHT": 96, "WIDTH": 96},
    "cpu": {"BATCH": 2, "CHANNELS_IN": 32, "CHANNELS_OUT": 16, "HEIGHT": 24, "WIDTH": 24},
}


class Model(nn.Module):
    """y = clamp(conv(x) + skip, -bound, bound), with a bound for each channel."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels_in, channels_out, kernel_size=2, stride=2)
        self.bound = nn.Parameter(0.5 + torch.rand(channels_out, 1, 1))

    def forward(self, x: torch.Tensor, skip: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, HEIGHT, WIDTH) and a skip twice as high and wide to y of the skip's shape."""
        y = self.conv(x) + skip
        return torch.minimum(torch.maximum(y, -self.bound), self.bound)


def get_inputs() -> list[torch.Tensor]:
    return [
        torch.randn(BATCH, CHANNELS_IN, HEIGHT, WIDTH),
        0.7 * torch.randn(BATCH, CHANNELS_OUT, 2 * HEIGHT, 2 * WIDTH),
    ]


def get_init_inputs() -> list[int]:
    return [CHANNELS_IN, CHANNELS_OUT]
