"""Dot products of all pairs of a sample's features, as in recommendation models.

Category: recommendation.
27 vectors of 64 a sample: a batch of tiny products that fill no tile, of whose result the lower triangle is kept. The
operators compute the full square, then gather; a kernel reads a sample into shared memory once.
Bound: 1.12 GB, 0.0122 TFLOP.
"""

import torch
from torch import nn

BATCH = 131072
FEATURES = 27
WIDTH = 64
SIZES = {"gpu": {"BATCH": 131072, "FEATURES": 27, "WIDTH": 64}, "cpu": {"BATCH": 1024, "FEATURES": 27, "WIDTH": 32}}


class Model(nn.Module):
    """The products <x[i], x[j]> / sqrt(WIDTH) for i > j, row by row, after the first feature itself."""

    pairs: torch.Tensor

    def __init__(self, features: int) -> None:
        super().__init__()
        rows, columns = torch.tril_indices(features, features, offset=-1, device="cpu")
        self.register_buffer("pairs", rows * features + columns)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, FEATURES, WIDTH) to (BATCH, WIDTH + FEATURES * (FEATURES - 1) / 2)."""
        products = torch.bmm(x, x.transpose(1, 2)).flatten(1) / x.shape[2] ** 0.5
        return torch.cat((x[:, 0], products[:, self.pairs]), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [0.7 * torch.randn(BATCH, FEATURES, WIDTH)]


def get_init_inputs() -> list[int]:
    return [FEATURES]
