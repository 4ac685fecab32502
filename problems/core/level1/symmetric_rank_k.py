"""A matrix times its own transpose.

Category: matmul.
The result is symmetric, so that half of the products need not be formed: a general matrix product does them all. Who
computes the lower tiles alone and writes them twice does half the work, with a store that is transposed.
Bound: 0.47 GB, 0.412 TFLOP.
"""

import torch
from torch import nn

ROWS = 8192
INNER = 6144
SIZES = {"gpu": {"ROWS": 8192, "INNER": 6144}, "cpu": {"ROWS": 384, "INNER": 384}}


class Model(nn.Module):
    """c = x @ x.T / INNER."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, INNER) to c (ROWS, ROWS)."""
        y: torch.Tensor = x @ x.T / self.inner**0.5
        return y


def get_inputs() -> list[torch.Tensor]:
    return [0.75 * torch.randn(ROWS, INNER)]


def get_init_inputs() -> list[int]:
    return [INNER]
