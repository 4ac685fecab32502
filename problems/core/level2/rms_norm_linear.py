"""RMS normalisation and the linear layer behind it.

Category: fusion.
The factor of a row can be multiplied onto the product's output as well as onto its input, and the weight of the
normalisation onto the columns of the matrix: then one pass of the product does everything, with the sum of squares
beside it.
Bound: 0.361 GB, 0.206 TFLOP.
"""

import torch
from torch import nn

TOKENS = 16384
WIDTH = 2048
WIDTH_OUT = 3072
SIZES = {
    "gpu": {"TOKENS": 16384, "WIDTH": 2048, "WIDTH_OUT": 3072},
    "cpu": {"TOKENS": 256, "WIDTH": 512, "WIDTH_OUT": 768},
}


class Model(nn.Module):
    """y = (x / sqrt(mean of x**2 + 1e-6) * weight) @ linear.T."""

    def __init__(self, width: int, width_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 + torch.rand(width))
        self.linear = nn.Linear(width, width_out, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (TOKENS, WIDTH) to y (TOKENS, WIDTH_OUT)."""
        normed = x * torch.rsqrt(x.pow(2).mean(dim=1, keepdim=True) + 1e-6) * self.weight
        y: torch.Tensor = self.linear(normed)
        return y


def get_inputs() -> list[torch.Tensor]:
    size = 0.1 + 4.0 * torch.rand(TOKENS, 1)  # a residual stream whose rows differ in size
    return [size * torch.randn(TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, WIDTH_OUT]
