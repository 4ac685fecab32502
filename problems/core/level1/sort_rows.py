"""The rows of a matrix, each sorted upwards.

Category: selection.
A row of 4096 fits in the shared memory of one block, where a bitonic network or a radix sort can run without touching
global memory in between; a general sort handles rows as segments of one long array, with several passes over all of it.
Bound: 1.07 GB.
"""

import torch
from torch import nn

ROWS = 32768
COLUMNS = 4096
SIZES = {"gpu": {"ROWS": 32768, "COLUMNS": 4096}, "cpu": {"ROWS": 128, "COLUMNS": 1024}}


class Model(nn.Module):
    """Each row in ascending order."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, COLUMNS) to y of the same shape."""
        return torch.sort(x, dim=1).values


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS) * (0.5 + torch.rand(ROWS, 1))]


def get_init_inputs() -> list[int]:
    return []
