"""A gated feed-forward layer (SwiGLU): two projections, one through Swish, their product, and a projection back.

Category: architecture.
At the GPU sizes (8192 tokens, width 2048, hidden 5632): three products of 2 * 8192 * 2048 * 5632 = 1.9e11 operations
each, 1.6 ms at 350 TFLOP/s (TF32). Swish and the gate's product move five times the 0.18 GB hidden tensor: 0.2 ms.
Bound: 0.273 GB, 0.567 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

TOKENS = 8192
WIDTH = 2048
HIDDEN = 5632
SIZES = {
    "gpu": {"TOKENS": 8192, "WIDTH": 2048, "HIDDEN": 5632},
    "cpu": {"TOKENS": 256, "WIDTH": 256, "HIDDEN": 704},
}


class Model(nn.Module):
    """y = down(swish(gate(x)) * up(x)), where swish(t) = t * sigmoid(t)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (TOKENS, WIDTH) to y of the same shape."""
        y: torch.Tensor = self.down(F.silu(self.gate(x)) * self.up(x))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [0.45 * torch.randn(TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HIDDEN]
