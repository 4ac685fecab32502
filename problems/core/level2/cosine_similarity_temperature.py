"""Cosine similarities of two batches over a learned temperature, as contrastive losses want them.

Category: distance.
Both operands are normalised row by row before the product; the two factors of an output may as well be applied after
it, with the norms summed while the operands pass through. The logits are normalised along both axes in the end.
Bound: 0.654 GB, 0.155 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 12288
COLUMNS = 12288
WIDTH = 512
SIZES = {"gpu": {"ROWS": 12288, "COLUMNS": 12288, "WIDTH": 512}, "cpu": {"ROWS": 512, "COLUMNS": 384, "WIDTH": 128}}


class Model(nn.Module):
    """y[i, j] = temperature[j] * cos(a[i], b[j]) * sqrt(WIDTH)."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        self.temperature = nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Maps a (ROWS, WIDTH) and b (COLUMNS, WIDTH) to y (ROWS, COLUMNS)."""
        a = F.normalize(a, dim=1)
        b = F.normalize(b, dim=1)
        y: torch.Tensor = self.temperature * (a @ b.T) * a.shape[1] ** 0.5
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, WIDTH) * (0.2 + 3.0 * torch.rand(ROWS, 1)), torch.randn(COLUMNS, WIDTH) + 0.3]


def get_init_inputs() -> list[int]:
    return [COLUMNS]
