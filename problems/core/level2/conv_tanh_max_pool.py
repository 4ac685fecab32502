"""A 5 x 5 convolution, tanh, and max pooling of 2 x 2.

Category: fusion.
Tanh is monotonic, so that the maximum may be taken first and tanh on a quarter of the elements; and the convolution's
tile holds whole windows, so that its full output never has to be written.
Bound: 0.302 GB, 0.121 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 64
CHANNELS_IN = 16
CHANNELS_OUT = 64
HEIGHT = 192
WIDTH = 192
SIZES = {
    "gpu": {"BATCH": 64, "CHANNELS_IN": 16, "CHANNELS_OUT": 64, "HEIGHT": 192, "WIDTH": 192},
    "cpu": {"BATCH": 2, "CHANNELS_IN": 8, "CHANNELS_OUT": 16, "HEIGHT": 48, "WIDTH": 48},
}


class Model(nn.Module):
    """y = max_pool(tanh(conv(x)))."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=5, padding=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, HEIGHT, WIDTH) to y (BATCH, CHANNELS_OUT, HEIGHT / 2, WIDTH / 2)."""
        return F.max_pool2d(torch.tanh(self.conv(x)), kernel_size=2)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS_IN, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS_IN, CHANNELS_OUT]
