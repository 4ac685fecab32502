"""Rows normalised by their mean absolute deviation, with a weight for each column, for any number of rows and columns.

Category: dynamic shapes.
The deviation wants the mean first, so that a row must be kept on the chip or read twice; there is no library kernel
for it, and the operators go over the matrix seven times. One kernel has to serve rows that fit a warp and rows that
fit no block, few rows and many: it is judged on shapes that are not shown, too.
Bound: 2.15 GB.
"""

import torch
from torch import nn

ROWS = 65536
COLUMNS = 4096
SIZES = {"gpu": {"ROWS": 65536, "COLUMNS": 4096}, "cpu": {"ROWS": 1024, "COLUMNS": 512}}


class Model(nn.Module):
    """d = x - mean(x); y = d / (mean(|d|) + 1e-3) * weight, the means taken over each row."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, COLUMNS) to y of the same shape."""
        d = x - x.mean(dim=1, keepdim=True)
        return d / (d.abs().mean(dim=1, keepdim=True) + 1e-3) * self.weight


def get_inputs() -> list[torch.Tensor]:
    return [(0.3 + 2.0 * torch.rand(ROWS, 1)) * torch.randn(ROWS, COLUMNS) + torch.randn(ROWS, 1)]


def get_init_inputs() -> list[int]:
    return [COLUMNS]
