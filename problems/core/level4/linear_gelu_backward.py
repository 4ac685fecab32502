"""The backward pass of a linear layer with GELU: gradients of input, weight and bias.

Category: backward.
GELU's derivative is applied to the gradient before three sums want it: two products of different orientation and a sum
down the columns. The pre-activation has to be formed again, so that there are three products in all.
Bound: 0.239 GB, 0.232 TFLOP.
"""

import math

import torch
from torch import nn

ROWS = 8192
WIDTH = 1536
WIDTH_OUT = 3072
SIZES = {"gpu": {"ROWS": 8192, "WIDTH": 1536, "WIDTH_OUT": 3072}, "cpu": {"ROWS": 256, "WIDTH": 192, "WIDTH_OUT": 384}}


class Model(nn.Module):
    """The gradients for y = gelu(x @ weight.T + bias), those of weight and bias over sqrt(ROWS)."""

    def __init__(self, width: int, width_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width_out)
        nn.init.normal_(self.linear.weight, std=1.0 / width**0.5)

    def forward(self, gradient: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Maps gradient (ROWS, WIDTH_OUT) and x (ROWS, WIDTH) to the gradients of x, weight and bias."""
        h = self.linear(x)
        density = torch.exp(-0.5 * h * h) / (2.0 * math.pi) ** 0.5
        inner = gradient * (0.5 * (1.0 + torch.erf(h / 2.0**0.5)) + h * density)
        root = x.shape[0] ** 0.5
        return inner @ self.linear.weight, inner.T @ x / root, inner.sum(dim=0) / root


def get_inputs() -> list[torch.Tensor]:
    return [0.5 * torch.randn(ROWS, WIDTH_OUT), torch.randn(ROWS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, WIDTH_OUT]
