"""A mobile block: 1 x 1 up, 3 x 3 by channel, gate, 1 x 1 down, residual.

Category: architecture.
The expanded tensor is four times the input and lives only between the convolutions; its depthwise middle is bound by
memory and its gate needs a mean over the image in between. Little of it is work for tensor cores.
Bound: 0.105 GB, 0.0144 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS = 64
EXPANDED = 256
HEIGHT = 80
WIDTH = 80
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS": 64, "EXPANDED": 256, "HEIGHT": 80, "WIDTH": 80},
    "cpu": {"BATCH": 2, "CHANNELS": 16, "EXPANDED": 64, "HEIGHT": 24, "WIDTH": 24},
}


class Model(nn.Module):
    """y = x + down(gate(h) * h), where h = hardswish(depthwise(hardswish(up(x))))."""

    def __init__(self, channels: int, expanded: int) -> None:
        super().__init__()
        self.up = nn.Conv2d(channels, expanded, kernel_size=1)
        self.depthwise = nn.Conv2d(expanded, expanded, kernel_size=3, padding=1, groups=expanded)
        self.squeeze = nn.Linear(expanded, expanded // 4)
        self.expand = nn.Linear(expanded // 4, expanded)
        self.down = nn.Conv2d(expanded, channels, kernel_size=1)
        for layer in (self.up, self.depthwise, self.down):
            nn.init.normal_(layer.weight, std=1.4 / layer.weight[0].numel() ** 0.5)
        nn.init.normal_(self.expand.weight, std=1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS, HEIGHT, WIDTH) to y of the same shape."""
        h = F.hardswish(self.depthwise(F.hardswish(self.up(x))))
        gate = F.hardsigmoid(self.expand(torch.relu(self.squeeze(h.mean(dim=(2, 3))))))
        y: torch.Tensor = x + self.down(h * gate.unsqueeze(2).unsqueeze(3))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [0.5 * torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH) + 0.3 * torch.randn(BATCH, CHANNELS, 1, 1)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, EXPANDED]
