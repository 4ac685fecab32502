"""A depthwise 3 x 3 convolution and the pointwise one that follows it.

Category: convolution.
The depthwise half is bound by memory, the pointwise half is a matrix product: between them lies a tensor that is
written and read for nothing if one block computes the depthwise tile into shared memory and multiplies it there.
Bound: 0.617 GB, 0.0272 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS_IN = 128
CHANNELS_OUT = 256
HEIGHT = 112
WIDTH = 112
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS_IN": 128, "CHANNELS_OUT": 256, "HEIGHT": 112, "WIDTH": 112},
    "cpu": {"BATCH": 2, "CHANNELS_IN": 16, "CHANNELS_OUT": 32, "HEIGHT": 40, "WIDTH": 40},
}


class Model(nn.Module):
    """y = relu6(pointwise(relu6(depthwise(x))))."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels_in, channels_in, kernel_size=3, padding=1, groups=channels_in)
        self.pointwise = nn.Conv2d(channels_in, channels_out, kernel_size=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, HEIGHT, WIDTH) to y (BATCH, CHANNELS_OUT, HEIGHT, WIDTH)."""
        return F.relu6(self.pointwise(F.relu6(self.depthwise(x))))


def get_inputs() -> list[torch.Tensor]:
    return [3.0 * torch.randn(BATCH, CHANNELS_IN, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS_IN, CHANNELS_OUT]
