"""Six matrices of different height, each times a matrix of its own.

Category: dynamic shapes.
Heights from 1 to 3333 against weights of one size: launched one after the other the small ones leave the GPU empty. One
grid over all tiles of all products needs the tile's own product found first, and tails that fit no tile.
Bound: 0.483 GB, 0.159 TFLOP.
"""

import torch
from torch import nn

INNER = 3072
COLUMNS = 4096
SIZES = {"gpu": {"INNER": 3072, "COLUMNS": 4096}, "cpu": {"INNER": 128, "COLUMNS": 192}}


class Model(nn.Module):
    """y[i] = x[i] @ weight[i] + bias[i]."""

    def __init__(self, inner: int, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(6, inner, columns) / inner**0.5)
        self.bias = nn.Parameter(torch.randn(6, columns))

    def forward(self, matrices: list[torch.Tensor]) -> list[torch.Tensor]:
        """Maps six matrices (height, INNER) to six (height, COLUMNS)."""
        return [x @ self.weight[i] + self.bias[i] for i, x in enumerate(matrices)]


def get_inputs() -> list[list[torch.Tensor]]:
    heights = [1, 17, 130, 777, 2049, 3333]
    return [[torch.randn(height, INNER) for height in heights]]


def get_init_inputs() -> list[int]:
    return [INNER, COLUMNS]
