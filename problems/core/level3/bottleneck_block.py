"""A ResNet bottleneck with batch normalisation as it is used after training.

Category: architecture.
Running statistics make the normalisations an affine map that can be folded into the convolutions before the first call,
at which point three of the passes are gone and ReLU and the residual belong to the products.
Bound: 0.206 GB, 0.014 TFLOP.
"""

import torch
from torch import nn

BATCH = 32
CHANNELS = 256
INNER = 64
HEIGHT = 56
WIDTH = 56
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS": 256, "INNER": 64, "HEIGHT": 56, "WIDTH": 56},
    "cpu": {"BATCH": 2, "CHANNELS": 64, "INNER": 16, "HEIGHT": 20, "WIDTH": 20},
}


class Model(nn.Module):
    """y = relu(x + norm3(conv3(relu(norm2(conv2(relu(norm1(conv1(x)))))))), with running statistics."""

    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, inner, kernel_size=1, bias=False)
        self.conv2 = nn.Conv2d(inner, inner, kernel_size=3, padding=1, bias=False)
        self.conv3 = nn.Conv2d(inner, channels, kernel_size=1, bias=False)
        self.norm1, self.norm2, self.norm3 = (nn.BatchNorm2d(size) for size in (inner, inner, channels))
        for norm in (self.norm1, self.norm2, self.norm3):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, std=0.3)
            assert norm.running_mean is not None
            assert norm.running_var is not None
            nn.init.normal_(norm.running_mean, std=0.3)
            nn.init.uniform_(norm.running_var, 0.3, 1.0)
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y of the same shape."""
        h = torch.relu(self.norm1(self.conv1(x)))
        h = torch.relu(self.norm2(self.conv2(h)))
        return torch.relu(x + self.norm3(self.conv3(h)))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, INNER]
