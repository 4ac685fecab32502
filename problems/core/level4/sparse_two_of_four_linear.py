"""A linear layer of whose weights two in each four are kept, with their places in two bits each.

Category: sparsity.
Values and places are stored, half the weights: sparse tensor cores take exactly this form (compressed values and 2-bit
places), in which half of the products are never done. The operators unpack a dense matrix first.
Bound: 0.31 GB, 0.275 TFLOP.
"""

import torch
from torch import nn

ROWS = 8192
INNER = 4096
COLUMNS = 4096
SIZES = {"gpu": {"ROWS": 8192, "INNER": 4096, "COLUMNS": 4096}, "cpu": {"ROWS": 256, "INNER": 384, "COLUMNS": 384}}


class Model(nn.Module):
    """y = x @ dense.T, dense[n, 4 * g + place[n, g, i]] = value[n, g, i] for i of two, zero elsewhere."""

    place: torch.Tensor

    def __init__(self, inner: int, columns: int) -> None:
        super().__init__()
        weight = torch.randn(columns, inner // 4, 4) / inner**0.5
        place = weight.abs().topk(2, dim=2).indices.sort(dim=2).values
        self.value = nn.Parameter(weight.gather(2, place))
        self.register_buffer("place", place.to(torch.uint8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, INNER) to y (ROWS, COLUMNS)."""
        columns, groups, _ = self.value.shape
        dense = torch.zeros(columns, groups, 4, dtype=x.dtype, device=x.device)
        return x @ dense.scatter(2, self.place.long(), self.value).flatten(1).T


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, INNER)]


def get_init_inputs() -> list[int]:
    return [INNER, COLUMNS]
