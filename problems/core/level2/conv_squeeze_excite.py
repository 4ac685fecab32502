"""A 1 x 1 convolution and the gate that squeeze-and-excitation puts on its channels.

Category: fusion.
The gate of a channel depends on that channel's mean over the whole image: the product must be finished before it can be
scaled. The mean can be had from the product's epilogue, or from the mean of its input, since both are linear.
Bound: 0.463 GB, 0.0296 TFLOP.
"""

import torch
from torch import nn

BATCH = 64
CHANNELS_IN = 192
CHANNELS_OUT = 384
HIDDEN = 48
HEIGHT = 56
WIDTH = 56
SIZES = {
    "gpu": {"BATCH": 64, "CHANNELS_IN": 192, "CHANNELS_OUT": 384, "HIDDEN": 48, "HEIGHT": 56, "WIDTH": 56},
    "cpu": {"BATCH": 4, "CHANNELS_IN": 32, "CHANNELS_OUT": 64, "HIDDEN": 16, "HEIGHT": 20, "WIDTH": 20},
}


class Model(nn.Module):
    """y = conv(x) * sigmoid(expand(relu(squeeze(mean of conv(x)))))."""

    def __init__(self, channels_in: int, channels_out: int, hidden: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=1)
        self.squeeze = nn.Linear(channels_out, hidden)
        self.expand = nn.Linear(hidden, channels_out)
        nn.init.normal_(self.expand.weight, std=2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, HEIGHT, WIDTH) to y (BATCH, CHANNELS_OUT, HEIGHT, WIDTH)."""
        y = self.conv(x)
        gate = torch.sigmoid(self.expand(torch.relu(self.squeeze(y.mean(dim=(2, 3))))))
        result: torch.Tensor = y * gate.unsqueeze(2).unsqueeze(3)
        return result


def get_inputs() -> list[torch.Tensor]:
    level = 0.9 * torch.randn(BATCH, CHANNELS_IN, 1, 1)  # what a channel sees differs from image to image
    return [level + 0.9 * torch.randn(BATCH, CHANNELS_IN, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS_IN, CHANNELS_OUT, HIDDEN]
