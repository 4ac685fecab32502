"""Rows added into the rows that an index names, in fixed point: the same result in every order, bit by bit.

Category: scatter.
Sums of floats depend on their order, and atomics have none. Here each value is rounded once to a multiple of 2**-20 and
summed as a 64-bit integer, so that there is one right answer however the sum is split; what is left to decide is where
partial sums are kept, since some places get hundreds of times more rows than others. The operators write the integers
out, eight bytes an element, before they add them.
Bound: 1.22 GB.
"""

import torch
from torch import nn

ROWS = 2097152
PLACES = 131072
WIDTH = 128
SIZES = {
    "gpu": {"ROWS": 2097152, "PLACES": 131072, "WIDTH": 128},
    "cpu": {"ROWS": 8192, "PLACES": 512, "WIDTH": 64},
}


class Model(nn.Module):
    """y[p] = sum over rows i with index[i] = p of round(x[i] * 2**20), halves to the even integer."""

    def __init__(self, places: int) -> None:
        super().__init__()
        self.places = places

    def forward(self, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, WIDTH) and index (ROWS,) to y (PLACES, WIDTH), int64."""
        codes = torch.round(x * 2.0**20).long()
        return torch.zeros(self.places, x.shape[1], dtype=torch.int64, device=x.device).index_add(0, index, codes)


def get_inputs() -> list[torch.Tensor]:
    index = (PLACES * torch.rand(ROWS) ** 2).long().clamp(max=PLACES - 1)
    return [torch.randn(ROWS, WIDTH) * (0.2 + torch.rand(ROWS, 1)), index]


def get_init_inputs() -> list[int]:
    return [PLACES]
