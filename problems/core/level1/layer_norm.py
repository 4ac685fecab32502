"""Layer normalisation over the last dimension, with scale and shift.

Category: normalisation.
At the GPU sizes (163840, 4096): 671e6 float32 elements, 2.68 GB read and 2.68 GB written. 5.4 GB at 4.3 TB/s: 1.2 ms.
A row of 16 KB fits the registers of one block, so that one read is enough for mean, variance and result; the two sums
follow each other, and the variance must not be taken as a difference of large numbers.
Bound: 5.37 GB.
"""

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 163840
COLUMNS = 4096
SIZES = {"gpu": {"ROWS": 163840, "COLUMNS": 4096}, "cpu": {"ROWS": 4096, "COLUMNS": 1024}}


class Model(nn.Module):
    """y = (x - mean) / sqrt(variance + 1e-5) * weight + bias, mean and variance taken over each row."""

    def __init__(self, columns: int) -> None:
        super().__init__()
        # Drawn rather than ones and zeros: skipping the scale or the shift must show.
        self.weight = nn.Parameter(torch.randn(columns))
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, COLUMNS) to y of the same shape."""
        return F.layer_norm(x, (x.shape[1],), self.weight, self.bias, 1e-5)


def get_inputs() -> list[torch.Tensor]:
    # Neither centred nor of unit variance: skipping the normalisation must show.
    return [2.0 * torch.randn(ROWS, COLUMNS) + 0.5]


def get_init_inputs() -> list[int]:
    return [COLUMNS]
