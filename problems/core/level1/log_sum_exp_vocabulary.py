"""The log-sum-exp of each row of a language model's logits.

Category: reduction.
A row is a vocabulary of 128256 entries, half a megabyte: it does not stay in registers, so that the maximum and the sum
must be found in one pass that rescales as the maximum grows, and a row must be split over several blocks when there are
fewer rows than processors.
Bound: 4.2 GB.
"""

import torch
from torch import nn

ROWS = 8192
COLUMNS = 128256
SIZES = {"gpu": {"ROWS": 8192, "COLUMNS": 128256}, "cpu": {"ROWS": 128, "COLUMNS": 8016}}


class Model(nn.Module):
    """y[i] = log(sum over j of exp(x[i, j]))."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, COLUMNS) to y (ROWS,)."""
        return torch.logsumexp(x, dim=1)


def get_inputs() -> list[torch.Tensor]:
    temperature = 0.5 + 2.0 * torch.rand(ROWS, 1)  # confident and unsure positions
    return [temperature * torch.randn(ROWS, COLUMNS) - 8.0]


def get_init_inputs() -> list[int]:
    return []
