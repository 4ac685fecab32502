"""The matrix of Gaussian kernels between two sets of points.

Category: distance.
Squared distances come from a matrix product and two vectors of squared norms; as operators four passes go over the
output after the product. Near points make the difference of large numbers small, which must not become negative.
Bound: 0.813 GB, 0.0258 TFLOP.
"""

import torch
from torch import nn

POINTS = 16384
OTHERS = 12288
WIDTH = 64
SIZES = {"gpu": {"POINTS": 16384, "OTHERS": 12288, "WIDTH": 64}, "cpu": {"POINTS": 768, "OTHERS": 512, "WIDTH": 32}}


class Model(nn.Module):
    """k[i, j] = exp(-scale * |x[i] - y[j]|**2 / WIDTH)."""

    def __init__(self, others: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(0.2 + 0.5 * torch.rand(others))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Maps x (POINTS, WIDTH) and y (OTHERS, WIDTH) to k (POINTS, OTHERS)."""
        squares = x.pow(2).sum(dim=1, keepdim=True) + y.pow(2).sum(dim=1) - 2.0 * x @ y.T
        return torch.exp(-self.scale * squares.clamp(min=0.0) / x.shape[1])


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(POINTS, WIDTH), torch.randn(OTHERS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [OTHERS]
