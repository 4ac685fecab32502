"""Row sums of a product of two matrices, the long way."""

import torch
from torch import nn

ROWS = 8192
INNER = 4096
COLUMNS = 8192
SIZES = {
    "gpu": {"ROWS": 8192, "INNER": 4096, "COLUMNS": 8192},
    "cpu": {"ROWS": 1024, "INNER": 1024, "COLUMNS": 1536},
}


class Model(nn.Module):
    """y[i] = sum over j of (a @ b)[i, j]."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Maps a (ROWS, INNER) and b (INNER, COLUMNS) to y (ROWS,)."""
        return torch.matmul(a, b).sum(dim=1)


def get_inputs():
    scale = 0.1 / (INNER * COLUMNS) ** 0.25
    return [scale * torch.randn(ROWS, INNER), scale * torch.randn(INNER, COLUMNS)]


def get_init_inputs():
    return []
