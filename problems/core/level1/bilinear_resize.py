"""Images made larger by 1.6 in both directions, by bilinear interpolation.

Category: resize.
Source coordinates are no integers and differ in step from the destination's: four neighbours and two weights for each
output, of which whole rows and columns share theirs. The ratio is not two, so that no fixed pattern of four cases does
it.
Bound: 1.12 GB.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS = 96
HEIGHT = 160
WIDTH = 160
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS": 96, "HEIGHT": 160, "WIDTH": 160},
    "cpu": {"BATCH": 2, "CHANNELS": 16, "HEIGHT": 40, "WIDTH": 40},
}


class Model(nn.Module):
    """Bilinear interpolation, pixel centres at half integers."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y (BATCH, CHANNELS, 1.6 * HEIGHT, 1.6 * WIDTH)."""
        size = (x.shape[2] * 8 // 5, x.shape[3] * 8 // 5)
        return F.interpolate(x, size=size, mode="bilinear", align_corners=False)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return []
