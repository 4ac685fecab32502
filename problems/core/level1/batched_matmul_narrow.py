"""A batch of products whose inner dimension is only 24.

Category: matmul.
The inner dimension is too short to hide the cost of reading and writing: a product of this form moves more bytes than
it has use for tensor cores, 24 is no multiple of their usual tiles, and the output dominates the traffic.
Bound: 1.4 GB, 0.0161 TFLOP.
"""

import torch
from torch import nn

BATCH = 256
ROWS = 1024
INNER = 24
COLUMNS = 1280
SIZES = {
    "gpu": {"BATCH": 256, "ROWS": 1024, "INNER": 24, "COLUMNS": 1280},
    "cpu": {"BATCH": 4, "ROWS": 256, "INNER": 24, "COLUMNS": 320},
}


class Model(nn.Module):
    """c[i] = a[i] @ b[i]."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Maps a (BATCH, ROWS, INNER) and b (BATCH, INNER, COLUMNS) to c (BATCH, ROWS, COLUMNS)."""
        return torch.bmm(a, b)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, ROWS, INNER) / INNER**0.5, 0.4 * torch.randn(BATCH, INNER, COLUMNS)]


def get_init_inputs() -> list[int]:
    return []
