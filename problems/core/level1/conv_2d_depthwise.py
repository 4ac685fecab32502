"""A 5 x 5 convolution of each channel by itself.

Category: convolution.
Without a sum over channels there is no matrix product in it: 25 multiplications for each element read, done from
registers and shared memory. Libraries make little of this case, and a plane's halo has to be read by its neighbours
too.
Bound: 1.26 GB, 0.00786 TFLOP.
"""

import torch
from torch import nn

BATCH = 32
CHANNELS = 192
HEIGHT = 160
WIDTH = 160
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS": 192, "HEIGHT": 160, "WIDTH": 160},
    "cpu": {"BATCH": 2, "CHANNELS": 24, "HEIGHT": 64, "WIDTH": 64},
}


class Model(nn.Module):
    """Each channel with a filter of its own; padded by two, so height and width stay."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=5, padding=2, groups=channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y of the same shape."""
        y: torch.Tensor = self.conv(x)
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
