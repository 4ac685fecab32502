"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/mean_axis.py"


class ModelNew(nn.Module):
    def forward(self, x):
        total = torch.zeros_like(x[:, 0])
        for start in range(0, x.shape[1], 8):
            total = total + x[:, start : start + 8].sum(dim=1)
        return total / x.shape[1]
