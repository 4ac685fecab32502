"""The mean of a sentence's tokens, without its padding, and a projection to unit length.

Category: pooling.
Sentences are of different length, so that a good half of the tokens need not be read at all; a product with a mask
reads everything, and writes it once more. What follows is small.
Bound: 3.22 GB, 0.000201 TFLOP.
"""

import torch
from torch import nn

BATCH = 512
TOKENS = 2048
WIDTH = 768
WIDTH_OUT = 256
SIZES = {
    "gpu": {"BATCH": 512, "TOKENS": 2048, "WIDTH": 768, "WIDTH_OUT": 256},
    "cpu": {"BATCH": 16, "TOKENS": 128, "WIDTH": 256, "WIDTH_OUT": 64},
}


class Model(nn.Module):
    """y = linear(mean of the first length[i] tokens), each row divided by its root mean square."""

    def __init__(self, width: int, width_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width_out)

    def forward(self, x: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, WIDTH) and length (BATCH,), at least one, to y (BATCH, WIDTH_OUT)."""
        mask = torch.arange(x.shape[1], device=x.device) < length.unsqueeze(1)
        mean = (x * mask.unsqueeze(2)).sum(dim=1) / length.unsqueeze(1)
        y = self.linear(mean)
        result: torch.Tensor = y * torch.rsqrt(y.pow(2).mean(dim=1, keepdim=True) + 1e-6)
        return result


def get_inputs() -> list[torch.Tensor]:
    topic = torch.randn(BATCH, 1, WIDTH)
    length = 1 + (TOKENS * torch.rand(BATCH) ** 2).long().clamp(max=TOKENS - 1)
    return [topic + torch.randn(BATCH, TOKENS, WIDTH), length]


def get_init_inputs() -> list[int]:
    return [WIDTH, WIDTH_OUT]
