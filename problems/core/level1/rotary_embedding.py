"""Rotary position embedding of queries.

Category: position embedding.
Pairs that lie half a head apart are rotated by an angle that depends on position and pair. The textbook form builds a
rotated copy of the whole tensor and adds two products; one pass needs one read and one write, and the tables stay in
cache.
Bound: 2.15 GB.
"""

import torch
from torch import nn

BATCH = 16
HEADS = 32
TOKENS = 4096
WIDTH = 128
SIZES = {
    "gpu": {"BATCH": 16, "HEADS": 32, "TOKENS": 4096, "WIDTH": 128},
    "cpu": {"BATCH": 2, "HEADS": 4, "TOKENS": 256, "WIDTH": 64},
}


class Model(nn.Module):
    """y = x * cos + rotate(x) * sin, where rotate maps halves (a, b) to (-b, a)."""

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, HEADS, TOKENS, WIDTH), cos and sin (TOKENS, WIDTH / 2) to y of x's shape."""
        a, b = x.chunk(2, dim=-1)
        rotated = torch.cat((-b, a), dim=-1)
        return x * torch.cat((cos, cos), dim=-1) + rotated * torch.cat((sin, sin), dim=-1)


def get_inputs() -> list[torch.Tensor]:
    frequency = 10000.0 ** (-torch.arange(WIDTH // 2) / (WIDTH // 2))
    start = torch.randint(0, 1000, ())  # the sequences go on somewhere
    angle = (start + torch.arange(TOKENS)).unsqueeze(1) * frequency
    return [torch.randn(BATCH, HEADS, TOKENS, WIDTH), angle.cos(), angle.sin()]


def get_init_inputs() -> list[int]:
    return []
