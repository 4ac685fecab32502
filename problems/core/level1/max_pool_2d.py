"""Max pooling of images: windows of 3 x 3, every second one, with a border.

Category: pooling.
Windows overlap, so that each input is wanted by up to four outputs: from memory it should come once. The border counts
as minus infinity and not as zero, which matters where a whole window is negative.
Bound: 2.68 GB.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 64
CHANNELS = 128
HEIGHT = 256
WIDTH = 256
SIZES = {
    "gpu": {"BATCH": 64, "CHANNELS": 128, "HEIGHT": 256, "WIDTH": 256},
    "cpu": {"BATCH": 4, "CHANNELS": 16, "HEIGHT": 96, "WIDTH": 96},
}


class Model(nn.Module):
    """The largest element of each window."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y (BATCH, CHANNELS, HEIGHT / 2, WIDTH / 2)."""
        return F.max_pool2d(x, kernel_size=3, stride=2, padding=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) - 0.5]


def get_init_inputs() -> list[int]:
    return []
