"""A sparse matrix with up to 32 entries a row times a dense matrix.

Category: sparsity.
Entries are stored padded, value and column, and padding has the value zero. Each entry reads a row of the dense matrix
from anywhere, which is the cost; the operators write all those rows out once and read them again.
Bound: 0.117 GB, 0.000537 TFLOP.
"""

import torch
from torch import nn

ROWS = 131072
OTHERS = 131072
ENTRIES = 32
WIDTH = 64
SIZES = {
    "gpu": {"ROWS": 131072, "OTHERS": 131072, "ENTRIES": 32, "WIDTH": 64},
    "cpu": {"ROWS": 2048, "OTHERS": 2048, "ENTRIES": 16, "WIDTH": 32},
}


class Model(nn.Module):
    """y[i] = sum over e of value[i, e] * x[column[i, e]]."""

    def forward(self, value: torch.Tensor, column: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Maps value and column (ROWS, ENTRIES) and x (OTHERS, WIDTH) to y (ROWS, WIDTH)."""
        return torch.einsum("re,rew->rw", value, x[column])


def get_inputs() -> list[torch.Tensor]:
    count = 1 + ((ENTRIES - 1) * torch.rand(ROWS, 1) ** 2).long()
    kept = torch.arange(ENTRIES) <= count
    value = torch.where(kept, 0.2 * torch.randn(ROWS, ENTRIES), 0.0)
    return [value, torch.randint(0, OTHERS, (ROWS, ENTRIES)), 0.8 * torch.randn(OTHERS, WIDTH)]


def get_init_inputs() -> list[int]:
    return []
