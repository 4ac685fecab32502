"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "core/level1/layer_norm"


class ModelNew(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        # Drawn rather than ones and zeros: skipping the scale or the shift must show.
        self.weight = nn.Parameter(torch.randn(columns))
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        mean = x.mean(dim=1, keepdim=True)
        centred = x - mean
        variance = (centred * centred).mean(dim=1, keepdim=True)
        return centred * torch.rsqrt(variance + 1e-5) * self.weight + self.bias
