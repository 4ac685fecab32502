"""A 3-D convolution, softplus, and the mean over depth.

Category: fusion.
Of the convolution's volume only a plane is left, so that a block which walks along the depth can keep the sum in
registers. Softplus stands between: it is no linear function, and must not overflow.
Bound: 0.437 GB, 0.178 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 16
CHANNELS_IN = 16
CHANNELS_OUT = 32
DEPTH = 32
HEIGHT = 112
WIDTH = 112
SIZES = {
    "gpu": {"BATCH": 16, "CHANNELS_IN": 16, "CHANNELS_OUT": 32, "DEPTH": 32, "HEIGHT": 112, "WIDTH": 112},
    "cpu": {"BATCH": 2, "CHANNELS_IN": 4, "CHANNELS_OUT": 8, "DEPTH": 12, "HEIGHT": 24, "WIDTH": 24},
}


class Model(nn.Module):
    """y = mean over depth of softplus(conv(x))."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv3d(channels_in, channels_out, kernel_size=3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, DEPTH, HEIGHT, WIDTH) to y (BATCH, CHANNELS_OUT, HEIGHT, WIDTH)."""
        return F.softplus(self.conv(x)).mean(dim=2)


def get_inputs() -> list[torch.Tensor]:
    level = torch.randn(BATCH, CHANNELS_IN, 1, HEIGHT, WIDTH)  # what is the same at every depth
    return [level + 2.0 * torch.randn(BATCH, CHANNELS_IN, DEPTH, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS_IN, CHANNELS_OUT]
