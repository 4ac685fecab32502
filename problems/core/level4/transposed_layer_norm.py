"""Layer normalisation over channels of a tensor that is stored with its tokens together.

Category: layout.
The input is a transposed view: the axis to normalise has a large stride, and the output is to be contiguous along it. A
copy first costs as much as the work itself; a block that reads along the tokens and writes along the channels needs
neither.
Bound: 1.07 GB.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 64
TOKENS = 2048
CHANNELS = 1024
SIZES = {"gpu": {"BATCH": 64, "TOKENS": 2048, "CHANNELS": 1024}, "cpu": {"BATCH": 4, "TOKENS": 192, "CHANNELS": 128}}


class Model(nn.Module):
    """y = (x - mean) / sqrt(variance + 1e-5) * weight + bias over the last axis, contiguous."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.5 + torch.rand(channels))
        self.bias = nn.Parameter(0.3 * torch.randn(channels))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, CHANNELS), a view of (BATCH, CHANNELS, TOKENS), to y of its shape."""
        return F.layer_norm(x.contiguous(), x.shape[2:], self.weight, self.bias, eps=1e-5)


def get_inputs() -> list[torch.Tensor]:
    stored = (0.5 + torch.rand(BATCH, CHANNELS, 1)) * torch.randn(BATCH, CHANNELS, TOKENS) + 0.5
    return [stored.transpose(1, 2)]


def get_init_inputs() -> list[int]:
    return [CHANNELS]
