"""Causal attention with eight queries to each head of keys and values.

Category: attention.
Eight heads of queries read the same keys and values, which PyTorch copies eight times first; half of the scores lie
after the query and need neither be formed nor masked. The scores, written out, are the largest tensor by far.
Bound: 0.151 GB, 0.137 TFLOP.
"""

import torch
from torch import nn

BATCH = 2
HEADS = 32
GROUPS = 4
TOKENS = 2048
WIDTH = 128
SIZES = {
    "gpu": {"BATCH": 2, "HEADS": 32, "GROUPS": 4, "TOKENS": 2048, "WIDTH": 128},
    "cpu": {"BATCH": 1, "HEADS": 8, "GROUPS": 2, "TOKENS": 192, "WIDTH": 32},
}


class Model(nn.Module):
    """y = softmax(q @ k.T / sqrt(WIDTH), over the tokens up to the query's) @ v."""

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Maps q (BATCH, HEADS, TOKENS, WIDTH), k and v (BATCH, GROUPS, TOKENS, WIDTH) to y of q's shape."""
        repeats = q.shape[1] // k.shape[1]
        k, v = k.repeat_interleave(repeats, dim=1), v.repeat_interleave(repeats, dim=1)
        later = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).triu(diagonal=1)
        scores = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(later, float("-inf"))
        return torch.softmax(scores, dim=3) @ v


def get_inputs() -> list[torch.Tensor]:
    q = 0.8 * torch.randn(BATCH, HEADS, TOKENS, WIDTH)
    return [q, torch.randn(BATCH, GROUPS, TOKENS, WIDTH), 0.7 * torch.randn(BATCH, GROUPS, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return []
