"""A matrix times one vector.

Category: matmul.
Every weight is used once, so that tensor cores have nothing to gain: this is a reduction over a matrix that streams
through, and the question is how many bytes are in flight, and how rows are split so that all processors have work to
the end.
Bound: 5.64 GB.
"""

import torch
from torch import nn

ROWS = 49152
COLUMNS = 28672
SIZES = {"gpu": {"ROWS": 49152, "COLUMNS": 28672}, "cpu": {"ROWS": 2048, "COLUMNS": 2048}}


class Model(nn.Module):
    """y = a @ x."""

    def forward(self, a: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Maps a (ROWS, COLUMNS) and x (COLUMNS,) to y (ROWS,)."""
        return torch.mv(a, x)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, COLUMNS), torch.randn(COLUMNS) / COLUMNS**0.5]


def get_init_inputs() -> list[int]:
    return []
