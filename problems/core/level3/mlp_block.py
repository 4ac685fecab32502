"""A transformer's feed-forward block: layer normalisation, two linear layers with GELU between, and a residual.

Category: architecture.
At the GPU sizes (8192 tokens, width 2048, hidden 8192): two products of 2 * 8192 * 2048 * 8192 = 2.7e11 operations
each, 1.6 ms at 350 TFLOP/s (TF32). GELU on the 0.27 GB hidden tensor, the normalisation and the residual move 0.9 GB:
0.2 ms.
Bound: 0.268 GB, 0.55 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

TOKENS = 8192
WIDTH = 2048
HIDDEN = 8192
SIZES = {
    "gpu": {"TOKENS": 8192, "WIDTH": 2048, "HIDDEN": 8192},
    "cpu": {"TOKENS": 256, "WIDTH": 256, "HIDDEN": 1024},
}


class Model(nn.Module):
    """y = x + down(gelu(up(norm(x)))), with the exact (erf) GELU."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        # A fresh LayerNorm scales by one and shifts by zero, which nobody would miss.
        nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        nn.init.normal_(self.norm.bias, std=0.1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (TOKENS, WIDTH) to y of the same shape."""
        hidden = F.gelu(self.up(self.norm(x)))
        return torch.add(x, self.down(hidden))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HIDDEN]
