"""PReLU with a slope for each channel of a batch of images.

Category: activation.
One element is read and one written for each multiplication, so memory alone bounds it. The slope depends on the
channel, the second of four axes: a kernel that treats the tensor as flat has to find the channel again without a
division for every element.
Bound: 4.83 GB.
"""

import torch
from torch import nn

BATCH = 64
CHANNELS = 256
HEIGHT = 192
WIDTH = 192
SIZES = {
    "gpu": {"BATCH": 64, "CHANNELS": 256, "HEIGHT": 192, "WIDTH": 192},
    "cpu": {"BATCH": 4, "CHANNELS": 32, "HEIGHT": 96, "WIDTH": 96},
}


class Model(nn.Module):
    """y = x where x is positive, slope[channel] * x elsewhere."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(0.1 + 0.4 * torch.rand(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y of the same shape."""
        return torch.where(x > 0, x, self.slope.view(1, -1, 1, 1) * x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
