"""A linear layer with a low-rank update beside it (LoRA).

Category: matmul.
The update is two thin products that together cost a percent of the operations, and as kernels of their own far more of
the time: the input is read twice and the output twice more. The thin factor can ride along in the large product's
tiles.
Bound: 0.361 GB, 0.212 TFLOP.
"""

import torch
from torch import nn

TOKENS = 16384
WIDTH = 2048
WIDTH_OUT = 3072
RANK = 32
SIZES = {
    "gpu": {"TOKENS": 16384, "WIDTH": 2048, "WIDTH_OUT": 3072, "RANK": 32},
    "cpu": {"TOKENS": 256, "WIDTH": 384, "WIDTH_OUT": 512, "RANK": 8},
}


class Model(nn.Module):
    """y = x @ weight.T + bias + 2 * (x @ down.T) @ up.T."""

    def __init__(self, width: int, width_out: int, rank: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width_out)
        self.down = nn.Parameter(torch.randn(rank, width) / width**0.5)
        self.up = nn.Parameter(0.5 * torch.randn(width_out, rank) / rank**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (TOKENS, WIDTH) to y (TOKENS, WIDTH_OUT)."""
        y: torch.Tensor = self.linear(x) + 2.0 * (x @ self.down.T) @ self.up.T
        return y


def get_inputs() -> list[torch.Tensor]:
    return [0.9 * torch.randn(TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, WIDTH_OUT, RANK]
