"""A 3 x 3 convolution, group normalisation and SiLU, as in a diffusion model.

Category: fusion.
The statistics stand between the convolution and everything after it: they can be gathered in its epilogue, and the
normalisation and SiLU then take one pass instead of three.
Bound: 0.403 GB, 0.0773 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS_IN = 64
CHANNELS_OUT = 128
GROUPS = 16
HEIGHT = 128
WIDTH = 128
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS_IN": 64, "CHANNELS_OUT": 128, "GROUPS": 16, "HEIGHT": 128, "WIDTH": 128},
    "cpu": {"BATCH": 2, "CHANNELS_IN": 16, "CHANNELS_OUT": 32, "GROUPS": 8, "HEIGHT": 32, "WIDTH": 32},
}


class Model(nn.Module):
    """y = silu(norm(conv(x)))."""

    def __init__(self, channels_in: int, channels_out: int, groups: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1)
        self.norm = nn.GroupNorm(groups, channels_out)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, HEIGHT, WIDTH) to y (BATCH, CHANNELS_OUT, HEIGHT, WIDTH)."""
        return F.silu(self.norm(self.conv(x)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS_IN, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS_IN, CHANNELS_OUT, GROUPS]
