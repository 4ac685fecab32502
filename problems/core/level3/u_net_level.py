"""One level of a U-Net: down, a middle at half size, up, and the skip connection.

Category: architecture.
The concatenation before the last convolution need not be made: a convolution over two tensors is the sum of two
convolutions. Pooling and the doubling in size belong to the convolutions beside them.
Bound: 0.21 GB, 0.0562 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS = 32
HEIGHT = 160
WIDTH = 160
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS": 32, "HEIGHT": 160, "WIDTH": 160},
    "cpu": {"BATCH": 2, "CHANNELS": 8, "HEIGHT": 32, "WIDTH": 32},
}


class Model(nn.Module):
    """s = relu(first(x)); y = relu(last(cat(s, up(relu(middle(max_pool(s)))))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        self.middle = nn.Conv2d(channels, 2 * channels, kernel_size=3, padding=1)
        self.up = nn.ConvTranspose2d(2 * channels, channels, kernel_size=2, stride=2)
        self.last = nn.Conv2d(2 * channels, channels, kernel_size=3, padding=1)
        for layer in (self.first, self.middle, self.last):
            nn.init.kaiming_normal_(layer.weight)
        nn.init.normal_(self.up.weight, std=1.0 / channels**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y of the same shape."""
        skip = torch.relu(self.first(x))
        inner = torch.relu(self.middle(F.max_pool2d(skip, kernel_size=2)))
        return torch.relu(self.last(torch.cat((skip, self.up(inner)), dim=1)))


def get_inputs() -> list[torch.Tensor]:
    return [0.35 * torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
