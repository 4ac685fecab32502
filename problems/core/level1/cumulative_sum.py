"""Running sums along the rows of a matrix.

Category: reduction.
Every output depends on all elements before it, so that a row cannot be cut into independent pieces: the known answers
are a scan by blocks with a look-back, or three passes. One read and one write of the matrix is the bound.
Bound: 4.29 GB.
"""

import torch
from torch import nn

ROWS = 4096
COLUMNS = 131072
SIZES = {"gpu": {"ROWS": 4096, "COLUMNS": 131072}, "cpu": {"ROWS": 64, "COLUMNS": 16384}}


class Model(nn.Module):
    """y[i, j] = sum of x[i, 0] to x[i, j]."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, COLUMNS) to y of the same shape."""
        return torch.cumsum(x, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS) / COLUMNS**0.5]


def get_init_inputs() -> list[int]:
    return []
