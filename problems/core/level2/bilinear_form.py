"""A bilinear form between rows of two matrices.

Category: matmul.
A full matrix product of which only its product with one row of the other operand, summed, is left: one number a row.
The product's tile can be multiplied and summed where it is; otherwise it is written and read for nothing.
Bound: 0.554 GB, 0.275 TFLOP.
"""

import torch
from torch import nn

ROWS = 32768
WIDTH = 2048
OTHER = 2048
SIZES = {"gpu": {"ROWS": 32768, "WIDTH": 2048, "OTHER": 2048}, "cpu": {"ROWS": 512, "WIDTH": 384, "OTHER": 384}}


class Model(nn.Module):
    """s[i] = x[i] @ weight @ y[i] / sqrt(OTHER)."""

    def __init__(self, width: int, other: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width, other) / width**0.5)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, WIDTH) and y (ROWS, OTHER) to s (ROWS,)."""
        s: torch.Tensor = (x @ self.weight * y).sum(dim=1) / y.shape[1] ** 0.5
        return s


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, WIDTH), 0.8 * torch.randn(ROWS, OTHER)]


def get_init_inputs() -> list[int]:
    return [WIDTH, OTHER]
