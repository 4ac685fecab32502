"""Average pooling of volumes: windows of 3 x 3 x 3 at every place.

Category: pooling.
Each input is wanted by 27 outputs. Done as it is written that is 27 loads an element; the window is a product of three
short ones, so that partial sums can be shared along each axis. Near the border only what lies inside counts.
Bound: 3.29 GB.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 8
CHANNELS = 64
DEPTH = 64
HEIGHT = 112
WIDTH = 112
SIZES = {
    "gpu": {"BATCH": 8, "CHANNELS": 64, "DEPTH": 64, "HEIGHT": 112, "WIDTH": 112},
    "cpu": {"BATCH": 1, "CHANNELS": 8, "DEPTH": 24, "HEIGHT": 32, "WIDTH": 32},
}


class Model(nn.Module):
    """The mean of the neighbours inside the volume, 27 or fewer."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, DEPTH, HEIGHT, WIDTH) to y of the same shape."""
        return F.avg_pool3d(x, kernel_size=3, stride=1, padding=1, count_include_pad=False)


def get_inputs() -> list[torch.Tensor]:
    return [2.0 * torch.randn(BATCH, CHANNELS, DEPTH, HEIGHT, WIDTH) + torch.randn(BATCH, CHANNELS, 1, 1, 1)]


def get_init_inputs() -> list[int]:
    return []
