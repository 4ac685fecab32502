"""A 3x3 convolution, a bias for each channel, and ReLU.

Category: fusion.
At the GPU sizes (128 images, 64 to 128 channels, 128 x 128): 2 * 128 * 128 * 128**2 * 64 * 9 = 3.1e11 operations,
0.9 ms at 350 TFLOP/s (TF32). The convolution moves 0.54 + 1.07 GB; bias and ReLU read and write 1.07 GB once each:
5.9 GB in all, 1.4 ms at 4.3 TB/s. Together about 2 ms.
Bound: 1.61 GB, 0.309 TFLOP.
"""

import torch
from torch import nn

BATCH = 128
CHANNELS_IN = 64
CHANNELS_OUT = 128
HEIGHT = 128
WIDTH = 128
SIZES = {
    "gpu": {"BATCH": 128, "CHANNELS_IN": 64, "CHANNELS_OUT": 128, "HEIGHT": 128, "WIDTH": 128},
    "cpu": {"BATCH": 8, "CHANNELS_IN": 16, "CHANNELS_OUT": 32, "HEIGHT": 64, "WIDTH": 64},
}


class Model(nn.Module):
    """y = relu(conv(x) + bias); the convolution pads by one, so height and width stay."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.bias = nn.Parameter(0.1 * torch.randn(channels_out, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, HEIGHT, WIDTH) to y (BATCH, CHANNELS_OUT, HEIGHT, WIDTH)."""
        return torch.relu(self.conv(x) + self.bias)


def get_inputs() -> list[torch.Tensor]:
    return [0.15 * torch.randn(BATCH, CHANNELS_IN, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS_IN, CHANNELS_OUT]
