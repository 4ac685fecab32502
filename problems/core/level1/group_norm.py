"""Group normalisation of a batch of images.

Category: normalisation.
A group of channels of one image is some hundred thousand contiguous elements: too many for one block's registers and
too few blocks to fill a large GPU one group each. Statistics have to be combined across blocks, or the data read twice.
Bound: 1.21 GB.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS = 128
GROUPS = 8
HEIGHT = 192
WIDTH = 192
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS": 128, "GROUPS": 8, "HEIGHT": 192, "WIDTH": 192},
    "cpu": {"BATCH": 2, "CHANNELS": 32, "GROUPS": 8, "HEIGHT": 64, "WIDTH": 64},
}


class Model(nn.Module):
    """Each image's groups of channels to mean 0 and variance 1, then a scale and a shift for each channel."""

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.groups = groups
        self.weight = nn.Parameter(0.5 + torch.rand(channels))
        self.bias = nn.Parameter(0.3 * torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y of the same shape."""
        return F.group_norm(x, self.groups, self.weight, self.bias, eps=1e-5)


def get_inputs() -> list[torch.Tensor]:
    spread = 0.5 + 1.5 * torch.rand(BATCH, CHANNELS, 1, 1)  # channels differ in size, as behind a convolution
    return [spread * torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) + 0.5 * torch.randn(1, CHANNELS, 1, 1)]


def get_init_inputs() -> list[int]:
    return [GROUPS, CHANNELS]
