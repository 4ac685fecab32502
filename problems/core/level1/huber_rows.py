"""The Huber loss between two matrices, weighted by column and averaged over each row.

Category: loss.
Two reads an element, a branch between a square and a line, and a sum at the end: with everything in one pass memory is
the only bound; operator by operator the difference, its parts and the product are all written out.
Bound: 2.15 GB.
"""

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 32768
COLUMNS = 8192
SIZES = {"gpu": {"ROWS": 32768, "COLUMNS": 8192}, "cpu": {"ROWS": 1024, "COLUMNS": 1024}}


class Model(nn.Module):
    """loss[i] = mean over j of weight[j] * huber(x[i, j] - target[i, j]), quadratic up to 1."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Maps x and target (ROWS, COLUMNS) to the loss (ROWS,)."""
        return (self.weight * F.huber_loss(x, target, reduction="none", delta=1.0)).mean(dim=1)


def get_inputs() -> list[torch.Tensor]:
    spread = 0.3 + 2.0 * torch.rand(ROWS, 1)  # some rows fit well, some badly
    target = torch.randn(ROWS, COLUMNS)
    return [target + spread * torch.randn(ROWS, COLUMNS), target]


def get_init_inputs() -> list[int]:
    return [COLUMNS]
