"""Attention inside windows of 8 x 8 of an image that is shifted by half a window, with a bias for each offset.

Category: attention.
Shifting, cutting into windows and putting back are four copies that are only addresses; the bias depends on the offset
of two pixels, and pixels that the shift has brought together from opposite edges must not see each other.
Bound: 0.202 GB, 0.0451 TFLOP.
"""

import torch
from torch import nn

BATCH = 32
HEIGHT = 64
WIDTH = 64
CHANNELS = 192
HEADS = 6
SIZES = {
    "gpu": {"BATCH": 32, "HEIGHT": 64, "WIDTH": 64, "CHANNELS": 192, "HEADS": 6},
    "cpu": {"BATCH": 2, "HEIGHT": 16, "WIDTH": 16, "CHANNELS": 48, "HEADS": 3},
}


class Model(nn.Module):
    """y = x + out(attention within shifted windows of qkv(x))."""

    offset: torch.Tensor
    apart: torch.Tensor

    def __init__(self, height: int, width: int, channels: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)
        self.bias = nn.Parameter(torch.randn(heads, 15 * 15))
        nn.init.normal_(self.qkv.weight, std=0.7 / channels**0.5)
        row, column = (t.flatten() for t in torch.meshgrid(*[torch.arange(8)] * 2, indexing="ij"))
        offset = (row.view(-1, 1) - row + 7) * 15 + column.view(-1, 1) - column + 7
        self.register_buffer("offset", offset)
        # Which of up to four parts of the image a pixel of a shifted window comes from.
        part = (torch.arange(height) >= height - 4).view(-1, 1) * 2 + (torch.arange(width) >= width - 4)
        part = part.view(height // 8, 8, width // 8, 8).transpose(1, 2).reshape(-1, 1, 64)
        self.register_buffer("apart", part.transpose(1, 2) != part)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, HEIGHT, WIDTH, CHANNELS) to y of the same shape."""
        batch, height, width, channels = x.shape
        h = torch.roll(x, (-4, -4), dims=(1, 2)).view(batch, height // 8, 8, width // 8, 8, channels)
        h = h.transpose(2, 3).reshape(batch, -1, 64, channels)
        q, k, v = self.qkv(h).view(batch, -1, 64, 3, self.heads, channels // self.heads).permute(3, 0, 1, 4, 2, 5)
        scores = q @ k.transpose(3, 4) / q.shape[4] ** 0.5 + self.bias[:, self.offset]
        scores = scores.masked_fill(self.apart.unsqueeze(1), float("-inf"))
        h = (torch.softmax(scores, dim=4) @ v).transpose(2, 3).reshape(batch, height // 8, width // 8, 8, 8, channels)
        h = torch.roll(h.transpose(2, 3).reshape(x.shape), (4, 4), dims=(1, 2))
        y: torch.Tensor = x + self.out(h)
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, HEIGHT, WIDTH, CHANNELS)]


def get_init_inputs() -> list[int]:
    return [HEIGHT, WIDTH, CHANNELS, HEADS]
