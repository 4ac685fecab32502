"""A projection, its residual, and the layer normalisation of the sum.

Category: fusion.
The end of a post-norm transformer layer: a row of the normalisation is as wide as the product's output, so that it
takes a block that owns whole rows, or statistics carried from tile to tile. Both the residual and the sum are read once
more than needed when nothing is fused.
Bound: 0.543 GB, 0.103 TFLOP.
"""

import torch
from torch import nn

TOKENS = 32768
WIDTH_IN = 1024
WIDTH = 1536
SIZES = {
    "gpu": {"TOKENS": 32768, "WIDTH_IN": 1024, "WIDTH": 1536},
    "cpu": {"TOKENS": 512, "WIDTH_IN": 256, "WIDTH": 384},
}


class Model(nn.Module):
    """y = norm(residual + linear(x))."""

    def __init__(self, width_in: int, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width_in, width)
        self.norm = nn.LayerNorm(width)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.3)

    def forward(self, x: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        """Maps x (TOKENS, WIDTH_IN) and residual (TOKENS, WIDTH) to y (TOKENS, WIDTH)."""
        y: torch.Tensor = self.norm(residual + self.linear(x))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [1.5 * torch.randn(TOKENS, WIDTH_IN), torch.randn(TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH_IN, WIDTH]
