"""Three layers of a DenseNet: each reads everything before it and adds 32 channels.

Category: architecture.
The concatenations copy what was there already, once for each layer; layers could write into one buffer and read a
prefix of its channels. Channel counts grow in steps that suit no tile.
Bound: 0.184 GB, 0.034 TFLOP.
"""

import torch
from torch import nn

BATCH = 32
CHANNELS = 64
GROWTH = 32
HEIGHT = 80
WIDTH = 80
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS": 64, "GROWTH": 32, "HEIGHT": 80, "WIDTH": 80},
    "cpu": {"BATCH": 2, "CHANNELS": 16, "GROWTH": 8, "HEIGHT": 24, "WIDTH": 24},
}


class Model(nn.Module):
    """h = cat(h, conv(relu(scale * h + shift))), three times, from h = x."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        widths = [channels + layer * growth for layer in range(3)]
        self.scales = nn.ParameterList([nn.Parameter(0.5 + torch.rand(width, 1, 1)) for width in widths])
        self.shifts = nn.ParameterList([nn.Parameter(0.3 * torch.randn(width, 1, 1)) for width in widths])
        convs = [nn.Conv2d(width, growth, kernel_size=3, padding=1, bias=False) for width in widths]
        for conv in convs:
            nn.init.kaiming_normal_(conv.weight)
        self.convs = nn.ModuleList(convs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to (BATCH, CHANNELS + 3 * GROWTH, HEIGHT, WIDTH)."""
        h = x
        for scale, shift, conv in zip(self.scales, self.shifts, self.convs, strict=True):
            h = torch.cat((h, conv(torch.relu(scale * h + shift))), dim=1)
        return h


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, GROWTH]
