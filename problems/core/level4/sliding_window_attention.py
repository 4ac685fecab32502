"""Causal attention that looks back 256 tokens and no further.

Category: attention.
Of the square of scores only a band is wanted, an eighth: work should grow with tokens times window, while the operators
form the square, mask it and multiply all of it by the values.
Bound: 0.134 GB, 0.0687 TFLOP.
"""

import torch
from torch import nn

BATCH = 4
HEADS = 16
TOKENS = 2048
WIDTH = 64
WINDOW = 256
SIZES = {
    "gpu": {"BATCH": 4, "HEADS": 16, "TOKENS": 2048, "WIDTH": 64, "WINDOW": 256},
    "cpu": {"BATCH": 1, "HEADS": 4, "TOKENS": 256, "WIDTH": 32, "WINDOW": 48},
}


class Model(nn.Module):
    """y = softmax(q @ k.T / sqrt(WIDTH), over the last `window` tokens up to the query's) @ v."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window = window

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        """Maps q, k and v (BATCH, HEADS, TOKENS, WIDTH) to y of the same shape."""
        place = torch.arange(q.shape[2], device=q.device)
        distance = place.unsqueeze(1) - place
        outside = (distance < 0) | (distance >= self.window)
        scores = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(outside, float("-inf"))
        return torch.softmax(scores, dim=3) @ v


def get_inputs() -> list[torch.Tensor]:
    shape = (BATCH, HEADS, TOKENS, WIDTH)
    return [0.8 * torch.randn(shape), torch.randn(shape), 0.7 * torch.randn(shape)]


def get_init_inputs() -> list[int]:
    return [WINDOW]
