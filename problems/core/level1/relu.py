"""ReLU over a large matrix.

Category: activation.
At the GPU sizes (8192, 81920): 671e6 float32 elements, 2.68 GB read and 2.68 GB written. 5.4 GB at 4.3 TB/s: 1.2 ms.
Bound: 5.37 GB.
"""

import torch
from torch import nn

ROWS = 8192
COLUMNS = 81920
SIZES = {"gpu": {"ROWS": 8192, "COLUMNS": 81920}, "cpu": {"ROWS": 3072, "COLUMNS": 2048}}


class Model(nn.Module):
    """y = max(x, 0), element by element."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, COLUMNS) to y of the same shape."""
        return torch.relu(x)


def get_inputs() -> list[torch.Tensor]:
    # Signed, so that returning the input unchanged is wrong at every scale.
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[int]:
    return []
