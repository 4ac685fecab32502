"""Attention without a softmax: positive features of queries and keys, and a sum in place of scores.

Category: attention.
Keys and values meet in a matrix of 64 x 64 for each head, so that nothing grows with the square of the tokens; what is
left is bound by memory, with the feature map, two sums over tokens and a division around two thin products.
Bound: 0.273 GB, 0.146 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 16
TOKENS = 4096
WIDTH = 512
HEADS = 8
SIZES = {
    "gpu": {"BATCH": 16, "TOKENS": 4096, "WIDTH": 512, "HEADS": 8},
    "cpu": {"BATCH": 2, "TOKENS": 256, "WIDTH": 128, "HEADS": 4},
}


class Model(nn.Module):
    """y = x + out(f(q) @ (f(k).T @ v) / (f(q) @ sum of f(k))), f(t) = elu(t) + 1."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        nn.init.normal_(self.qkv.weight, std=2.0 / width**0.5)
        nn.init.normal_(self.out.weight, std=3.0 / width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, WIDTH) to y of the same shape."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k = F.elu(q) + 1.0, F.elu(k) + 1.0
        state = k.transpose(2, 3) @ v / tokens
        weight = q @ k.mean(dim=2).unsqueeze(3)
        heads = (q @ state / (weight + 1e-6)).transpose(1, 2).reshape(batch, tokens, width)
        y: torch.Tensor = x + self.out(heads)
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HEADS]
