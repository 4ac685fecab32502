"""Attention within sequences of different length that lie one after the other in a row.

Category: attention.
The lengths are data: a block-diagonal pattern whose blocks end anywhere, so that tiles at their edges are partly masked
and most tiles are not needed at all. The operators form the scores of all pairs of tokens.
Bound: 0.0336 GB, 0.0344 TFLOP.
"""

import torch
from torch import nn

TOKENS = 4096
SEQUENCES = 12
HEADS = 8
WIDTH = 64
SIZES = {
    "gpu": {"TOKENS": 4096, "SEQUENCES": 12, "HEADS": 8, "WIDTH": 64},
    "cpu": {"TOKENS": 256, "SEQUENCES": 5, "HEADS": 4, "WIDTH": 32},
}


class Model(nn.Module):
    """y = softmax(q @ k.T / sqrt(WIDTH), over the tokens of the query's own sequence) @ v."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
        """Maps q, k, v (HEADS, TOKENS, WIDTH) and starts (SEQUENCES,), rising from 0, to y of q's shape."""
        place = torch.arange(q.shape[1], device=q.device)
        sequence = torch.searchsorted(starts, place, right=True)
        apart = sequence.unsqueeze(1) != sequence
        scores = (q @ k.transpose(1, 2) / q.shape[2] ** 0.5).masked_fill(apart, float("-inf"))
        return torch.softmax(scores, dim=2) @ v


def get_inputs() -> list[torch.Tensor]:
    shape = (HEADS, TOKENS, WIDTH)
    cuts = 1 + (torch.rand(SEQUENCES - 1) * (TOKENS - 1)).long()
    starts = torch.cat((torch.zeros(1, dtype=torch.int64), cuts.sort().values))
    return [0.8 * torch.randn(shape), torch.randn(shape), 0.7 * torch.randn(shape), starts]


def get_init_inputs() -> list[int]:
    return []
