"""A lower triangular matrix times a dense one.

Category: matmul.
Everything above the diagonal of the left operand is to be taken as zero, whatever is stored there: half of the tiles
never need to be read. The rows that are left are of very different length, which is a question of balance.
Bound: 0.671 GB, 0.412 TFLOP.
"""

import torch
from torch import nn

ROWS = 8192
COLUMNS = 6144
SIZES = {"gpu": {"ROWS": 8192, "COLUMNS": 6144}, "cpu": {"ROWS": 384, "COLUMNS": 384}}


class Model(nn.Module):
    """c = tril(a) @ b."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Maps a (ROWS, ROWS) and b (ROWS, COLUMNS) to c (ROWS, COLUMNS)."""
        return torch.tril(a) @ b


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, ROWS) / ROWS**0.5, 0.6 * torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[int]:
    return []
