"""Causal attention with a learned sink in each head that takes probability and gives nothing.

Category: attention.
The sink is one more term in the denominator, so that a fused softmax has to begin with it and not with nothing; as
operators it is a column that is appended, normalised with, and cut off again, each time copying all scores.
Bound: 0.0671 GB, 0.0344 TFLOP.
"""

import torch
from torch import nn

BATCH = 2
HEADS = 16
TOKENS = 2048
WIDTH = 64
SIZES = {
    "gpu": {"BATCH": 2, "HEADS": 16, "TOKENS": 2048, "WIDTH": 64},
    "cpu": {"BATCH": 1, "HEADS": 4, "TOKENS": 192, "WIDTH": 32},
}


class Model(nn.Module):
    """y = p @ v with p = exp(s) / (exp(sink) + sum of exp(s) up to the row's own column), s = q @ k.T / sqrt(WIDTH)."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.sink = nn.Parameter(2.0 + 3.0 * torch.rand(heads))

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Maps q, k and v (BATCH, HEADS, TOKENS, WIDTH) to y of the same shape."""
        batch, heads, tokens, width = q.shape
        later = torch.ones(tokens, tokens, dtype=torch.bool, device=q.device).triu(diagonal=1)
        scores = (q @ k.transpose(2, 3) / width**0.5).masked_fill(later, float("-inf"))
        sink = self.sink.view(1, heads, 1, 1).expand(batch, heads, tokens, 1)
        return torch.softmax(torch.cat((sink, scores), dim=3), dim=3)[..., 1:] @ v


def get_inputs() -> list[torch.Tensor]:
    shape = (BATCH, HEADS, TOKENS, WIDTH)
    return [0.8 * torch.randn(shape), torch.randn(shape), torch.randn(shape)]


def get_init_inputs() -> list[int]:
    return [HEADS]
