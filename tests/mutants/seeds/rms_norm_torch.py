"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/rms_norm.py"


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        mean = (x * x).mean(dim=1, keepdim=True)
        return x * torch.rsqrt(mean + 1e-5) * self.weight
