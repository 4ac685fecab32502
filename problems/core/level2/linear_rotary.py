"""The projection to queries, split into heads and rotated by position.

Category: fusion.
The rotation mixes columns half a head apart, which lie in one tile of the product or in two; the order of the axes
changes as well. As operators it is four passes over the output after the product.
Bound: 0.273 GB, 0.0687 TFLOP.
"""

import torch
from torch import nn

BATCH = 16
TOKENS = 2048
WIDTH = 1024
HEADS = 16
SIZES = {
    "gpu": {"BATCH": 16, "TOKENS": 2048, "WIDTH": 1024, "HEADS": 16},
    "cpu": {"BATCH": 2, "TOKENS": 128, "WIDTH": 256, "HEADS": 4},
}


class Model(nn.Module):
    """y = rotate(heads of linear(x)), pairs half a head apart, by position * 10000**(-pair / pairs)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.linear = nn.Linear(width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, WIDTH) to y (BATCH, HEADS, TOKENS, WIDTH / HEADS)."""
        batch, tokens, width = x.shape
        y = self.linear(x).view(batch, tokens, self.heads, width // self.heads).transpose(1, 2)
        a, b = y.chunk(2, dim=3)
        pairs = a.shape[3]
        place = torch.arange(tokens, device=x.device, dtype=x.dtype).unsqueeze(1)
        angle = place * 10000.0 ** (-torch.arange(pairs, device=x.device, dtype=x.dtype) / pairs)
        return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=3)


def get_inputs() -> list[torch.Tensor]:
    return [1.5 * torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HEADS]
