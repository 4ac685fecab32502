"""Rows of a table, chosen by integer indices and averaged."""

import torch
import torch.nn.functional as F
from torch import nn

BAGS = 65536
LENGTH = 32
VOCABULARY = 50000
WIDTH = 256
SIZES = {
    "gpu": {"BAGS": 65536, "LENGTH": 32, "VOCABULARY": 50000, "WIDTH": 256},
    "cpu": {"BAGS": 700, "LENGTH": 21, "VOCABULARY": 1009, "WIDTH": 96},
}


class Model(nn.Module):
    """y[b] = mean over l of table[indices[b, l]]."""

    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocabulary, width))

    def forward(self, indices: torch.Tensor) -> torch.Tensor:
        """Maps indices (BAGS, LENGTH) to y (BAGS, WIDTH)."""
        return F.embedding_bag(indices, self.table, mode="mean")


def get_inputs():
    return [torch.randint(0, VOCABULARY, (BAGS, LENGTH))]


def get_init_inputs():
    return [VOCABULARY, WIDTH]
