"""The Walsh-Hadamard transform of each row, with random signs before it.

Category: transform.
Twelve steps of sums and differences on rows of 4096: a whole row fits into the registers of one block, so that one read
and one write are enough. Step by step the matrix goes through memory twelve times. As a matrix product it would take
340 times as many: 4096 multiplications with additions an element against 12 additions.
Bound: 0.537 GB.
"""

import torch
from torch import nn

ROWS = 16384
COLUMNS = 4096
SIZES = {"gpu": {"ROWS": 16384, "COLUMNS": 4096}, "cpu": {"ROWS": 256, "COLUMNS": 1024}}


class Model(nn.Module):
    """y = H @ (sign * x) / sqrt(COLUMNS), row by row, H the Hadamard matrix in its natural order."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.sign = nn.Parameter(torch.where(torch.rand(columns) < 0.5, -1.0, 1.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, COLUMNS) to y of the same shape."""
        rows, columns = x.shape
        y, half = self.sign * x, 1
        while half < columns:
            pairs = y.view(rows, -1, 2, half)
            y = torch.stack((pairs[:, :, 0] + pairs[:, :, 1], pairs[:, :, 0] - pairs[:, :, 1]), dim=2)
            half *= 2
        result: torch.Tensor = y.view(rows, columns) / columns**0.5
        return result


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS) * (0.2 + 2.0 * torch.rand(ROWS, COLUMNS))]


def get_init_inputs() -> list[int]:
    return [COLUMNS]
