"""Anti-aliased downsampling: a 4 x 4 blur, every second pixel, and a gain for each channel.

Category: resize.
The blur is an outer product of (1, 3, 3, 1) with itself, the same for every channel: eight multiplications where a
depthwise convolution does sixteen. The image is extended by reflection, which a library does in a pass of its own.
Bound: 1.13 GB, 0.00181 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 48
CHANNELS = 128
HEIGHT = 192
WIDTH = 192
SIZES = {
    "gpu": {"BATCH": 48, "CHANNELS": 128, "HEIGHT": 192, "WIDTH": 192},
    "cpu": {"BATCH": 2, "CHANNELS": 16, "HEIGHT": 64, "WIDTH": 64},
}


class Model(nn.Module):
    """y = gain[channel] * blur(x) at every second row and column, x extended by reflection."""

    filter: torch.Tensor

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(0.5 + 2.0 * torch.rand(channels, 1, 1))
        taps = torch.tensor([1.0, 3.0, 3.0, 1.0], device="cpu") / 8.0
        self.register_buffer("filter", torch.outer(taps, taps).expand(channels, 1, 4, 4).contiguous())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y (BATCH, CHANNELS, HEIGHT / 2, WIDTH / 2)."""
        padded = F.pad(x, (1, 1, 1, 1), mode="reflect")
        return self.gain * F.conv2d(padded, self.filter, stride=2, groups=x.shape[1])


def get_inputs() -> list[torch.Tensor]:
    return [2.0 * torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
