"""Attention probabilities whose scores are capped by tanh, with padding masked.

Category: attention.
The cap goes between scaling and masking, the mask is a length for each sequence, and a head has a bias of its own: five
passes over the scores as operators, none beyond the output when they are part of the product.
Bound: 1.11 GB, 0.0258 TFLOP.
"""

import torch
from torch import nn

BATCH = 96
HEADS = 16
QUERIES = 512
KEYS = 256
WIDTH = 64
SIZES = {
    "gpu": {"BATCH": 96, "HEADS": 16, "QUERIES": 512, "KEYS": 256, "WIDTH": 64},
    "cpu": {"BATCH": 2, "HEADS": 4, "QUERIES": 96, "KEYS": 192, "WIDTH": 32},
}


class Model(nn.Module):
    """p = softmax(cap * tanh(q @ k.T / sqrt(WIDTH) / cap)) over the first length[i] keys, a cap for each head."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.cap = nn.Parameter(5.0 + 10.0 * torch.rand(heads, 1, 1))

    def forward(self, q: torch.Tensor, k: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Maps q (BATCH, HEADS, QUERIES, WIDTH), k (BATCH, HEADS, KEYS, WIDTH), length (BATCH,) to p."""
        scores = self.cap * torch.tanh(q @ k.transpose(2, 3) / q.shape[3] ** 0.5 / self.cap)
        padding = torch.arange(k.shape[2], device=k.device) >= length.view(-1, 1, 1, 1)
        return torch.softmax(scores.masked_fill(padding, float("-inf")), dim=3)


def get_inputs() -> list[torch.Tensor]:
    length = torch.randint(KEYS // 4, KEYS + 1, (BATCH,))
    return [3.0 * torch.randn(BATCH, HEADS, QUERIES, WIDTH), torch.randn(BATCH, HEADS, KEYS, WIDTH), length]


def get_init_inputs() -> list[int]:
    return [HEADS]
