"""Rows added into the rows of a smaller matrix that an index names.

Category: scatter.
Many rows go to the same place, some places get far more than others, and the order is random: atomics contend, sorting
first costs passes of its own. The sum in each place must be complete, whatever the order.
Bound: 1.12 GB.
"""

import torch
from torch import nn

ROWS = 2097152
WIDTH = 128
PLACES = 65536
SIZES = {"gpu": {"ROWS": 2097152, "WIDTH": 128, "PLACES": 65536}, "cpu": {"ROWS": 16384, "WIDTH": 64, "PLACES": 1024}}


class Model(nn.Module):
    """y[p] = sum of the rows x[i] with index[i] == p."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.places = places

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, WIDTH) and index (ROWS,) to y (PLACES, WIDTH)."""
        return torch.zeros(self.places, x.shape[1], dtype=x.dtype, device=x.device).index_add(0, index, x)


def get_inputs() -> list[torch.Tensor]:
    index = (PLACES * torch.rand(ROWS) ** 2).long().clamp(max=PLACES - 1)
    return [0.2 * torch.randn(ROWS, WIDTH), index]


def get_init_inputs() -> list[int]:
    return [PLACES]
