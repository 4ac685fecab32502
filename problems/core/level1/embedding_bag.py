"""Weighted sums of rows of a table, a bag of indices for each output.

Category: index.
Each bag gathers rows from all over a table that no cache holds; a row is short, so that memory is used well only when
several rows are in flight. Operator by operator the gathered rows are written out and read again before they are
summed.
Bound: 1.08 GB.
"""

import torch
from torch import nn

ENTRIES = 2000000
WIDTH = 128
BAGS = 65536
LENGTH = 32
SIZES = {
    "gpu": {"ENTRIES": 2000000, "WIDTH": 128, "BAGS": 65536, "LENGTH": 32},
    "cpu": {"ENTRIES": 20000, "WIDTH": 64, "BAGS": 1024, "LENGTH": 16},
}


class Model(nn.Module):
    """y[i] = sum over k of weight[i, k] * table[index[i, k]]."""

    def __init__(self, entries: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(entries, width) / 4.0)

    def forward(self, index: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Maps index and weight (BAGS, LENGTH) to y (BAGS, WIDTH)."""
        return (self.table[index] * weight.unsqueeze(-1)).sum(dim=1)


def get_inputs() -> list[torch.Tensor]:
    # Popular entries come up more often than others.
    index = (ENTRIES * torch.rand(BAGS, LENGTH) ** 3).long().clamp(max=ENTRIES - 1)
    return [index, torch.randn(BAGS, LENGTH)]


def get_init_inputs() -> list[int]:
    return [ENTRIES, WIDTH]
