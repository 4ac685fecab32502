"""A residual block of two 3x3 convolutions with group normalisation and ReLU between them.

Category: architecture.
At the GPU sizes (128 images, 64 channels, 128 x 128) a tensor has 134e6 float32 elements, 0.54 GB. Operator by
operator the convolutions move two each, the normalisation three, ReLU two, the sum three and the last ReLU two: 14 *
0.54 = 7.5 GB, 1.7 ms at 4.3 TB/s. The convolutions take 2 * 2 * 128 * 64 * 128**2 * 64 * 9 = 3.1e11 operations, 0.9 ms
at 350 TFLOP/s (TF32). Products that overlap their own traffic leave about 2 ms.
Bound: 1.07 GB, 0.309 TFLOP.
"""

import torch
from torch import nn

BATCH = 128
CHANNELS = 64
GROUPS = 8
HEIGHT = 128
WIDTH = 128
SIZES = {
    "gpu": {"BATCH": 128, "CHANNELS": 64, "GROUPS": 8, "HEIGHT": 128, "WIDTH": 128},
    "cpu": {"BATCH": 4, "CHANNELS": 32, "GROUPS": 8, "HEIGHT": 48, "WIDTH": 48},
}


class Model(nn.Module):
    """y = relu(x + conv2(relu(norm(conv1(x))))); the convolutions pad by one, so height and width stay."""

    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        # A fresh GroupNorm scales by one and shifts by zero, which nobody would miss.
        nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        nn.init.normal_(self.norm.bias, std=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y of the same shape."""
        return torch.relu(x + self.conv2(torch.relu(self.norm(self.conv1(x)))))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, GROUPS]
