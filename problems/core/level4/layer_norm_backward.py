"""The backward pass of layer normalisation: gradients of input, scale and shift.

Category: backward.
The input's gradient wants two sums along each row, the parameters' gradients want sums down the columns of the same
data: one read serves both only if partial column sums are kept by the blocks and combined at the end.
Bound: 1.61 GB.
"""

import torch
from torch import nn

ROWS = 32768
COLUMNS = 4096
SIZES = {"gpu": {"ROWS": 32768, "COLUMNS": 4096}, "cpu": {"ROWS": 512, "COLUMNS": 512}}


class Model(nn.Module):
    """The gradients for y = (x - mean) / sqrt(variance + 1e-5) * weight + bias; the parameters' over sqrt(ROWS)."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, gradient: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Maps gradient and x (ROWS, COLUMNS) to gradients of x, weight and bias."""
        variance, mean = torch.var_mean(x, dim=1, correction=0, keepdim=True)
        scale = torch.rsqrt(variance + 1e-5)
        normed = (x - mean) * scale
        inner = gradient * self.weight
        along = inner.mean(dim=1, keepdim=True) + normed * (inner * normed).mean(dim=1, keepdim=True)
        root = x.shape[0] ** 0.5
        return (inner - along) * scale, (gradient * normed).sum(dim=0) / root, gradient.sum(dim=0) / root


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS), (0.5 + torch.rand(ROWS, 1)) * torch.randn(ROWS, COLUMNS) + 0.5]


def get_init_inputs() -> list[int]:
    return [COLUMNS]
