"""Attention probabilities with a linear penalty on distance.

Category: attention.
The penalty (ALiBi) is a function of two indices and a slope for each head: written out it is as large as the scores
themselves. Product, penalty, mask and softmax fit one pass over the output, which is the bound.
Bound: 1.34 GB, 0.0344 TFLOP.
"""

import torch
from torch import nn

BATCH = 64
HEADS = 16
TOKENS = 512
WIDTH = 64
SIZES = {
    "gpu": {"BATCH": 64, "HEADS": 16, "TOKENS": 512, "WIDTH": 64},
    "cpu": {"BATCH": 1, "HEADS": 4, "TOKENS": 192, "WIDTH": 32},
}


class Model(nn.Module):
    """p = softmax(q @ k.T / sqrt(WIDTH) - slope * (row - column)) over the columns up to the row's own."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.slope = nn.Parameter(2.0 ** (-8.0 * torch.arange(1, heads + 1) / heads))

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """Maps q and k (BATCH, HEADS, TOKENS, WIDTH) to p (BATCH, HEADS, TOKENS, TOKENS)."""
        tokens, width = q.shape[2:]
        place = torch.arange(tokens, device=q.device)
        distance = place.unsqueeze(1) - place
        scores = q @ k.transpose(2, 3) / width**0.5 - self.slope.view(-1, 1, 1) * distance
        return torch.softmax(scores.masked_fill(distance < 0, float("-inf")), dim=3)


def get_inputs() -> list[torch.Tensor]:
    return [2.0 * torch.randn(BATCH, HEADS, TOKENS, WIDTH), torch.randn(BATCH, HEADS, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [HEADS]
