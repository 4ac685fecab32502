"""A diagonal matrix times a matrix, the long way."""

import torch
from torch import nn

ROWS = 4096
COLUMNS = 4096
SIZES = {"gpu": {"ROWS": 4096, "COLUMNS": 4096}, "cpu": {"ROWS": 1024, "COLUMNS": 512}}


class Model(nn.Module):
    """y = diag(d) @ x."""

    def forward(self, d: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Maps d (ROWS,) and x (ROWS, COLUMNS) to y (ROWS, COLUMNS)."""
        return torch.diag(d) @ x


def get_inputs():
    return [torch.randn(ROWS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
