"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "core/level2/residual_rms_norm"


class ModelNew(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x, residual):
        total = x + residual
        mean = (total * total).sum(dim=1, keepdim=True) / x.shape[1]
        return total / torch.sqrt(mean + 1e-5) * self.weight, total
