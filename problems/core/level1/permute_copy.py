"""Heads and tokens of an activation change places, as contiguous memory.

Category: data movement.
Nothing is calculated. Rows of 64 floats move as wholes, so that both sides can be read and written in full lines, but
the order of the addresses is different on each side; a general permutation kernel does not see this and loses time.
Bound: 2.15 GB.
"""

import torch
from torch import nn

BATCH = 32
TOKENS = 4096
HEADS = 32
WIDTH = 64
SIZES = {
    "gpu": {"BATCH": 32, "TOKENS": 4096, "HEADS": 32, "WIDTH": 64},
    "cpu": {"BATCH": 2, "TOKENS": 256, "HEADS": 8, "WIDTH": 64},
}


class Model(nn.Module):
    """y[b, h, w, t] = x[b, t, h, w]: heads first, and tokens as the contiguous axis."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, HEADS, WIDTH) to y (BATCH, HEADS, WIDTH, TOKENS)."""
        return x.permute(0, 2, 3, 1).contiguous()


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, TOKENS, HEADS, WIDTH)]


def get_init_inputs() -> list[int]:
    return []
