"""Four Newton-Schulz steps towards the nearest orthogonal matrix of a gradient (Muon).

Category: optimiser step.
Each step is a symmetric product, a square of it and a product with the matrix again: half of the first two is
redundant, and the three polynomial terms between them are passes of their own. The matrix is scaled by its norm first.
Bound: 0.0671 GB, 0.344 TFLOP.
"""

import torch
from torch import nn

ROWS = 2048
COLUMNS = 4096
SIZES = {"gpu": {"ROWS": 2048, "COLUMNS": 4096}, "cpu": {"ROWS": 128, "COLUMNS": 256}}


class Model(nn.Module):
    """x = g / |g|; four times x = a x + (b s + c s @ s) @ x with s = x @ x.T; y = 0.2 * sqrt(COLUMNS) * x."""

    def forward(self, g: torch.Tensor) -> torch.Tensor:
        """Maps g (ROWS, COLUMNS), no more rows than columns, to y of the same shape."""
        x = g / (g.norm() + 1e-7)
        for _ in range(4):
            s = x @ x.T
            x = 3.4445 * x + (-4.775 * s + 2.0315 * s @ s) @ x
        y: torch.Tensor = 0.2 * x * g.shape[1] ** 0.5
        return y


def get_inputs() -> list[torch.Tensor]:
    size = 0.2 + torch.rand(ROWS, 1)  # some directions are much stronger than others
    return [size * torch.randn(ROWS, COLUMNS)]


def get_init_inputs() -> list[int]:
    return []
