"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/max_axis.py"


class ModelNew(nn.Module):
    def forward(self, x):
        best = x[:, 0]
        for i in range(1, x.shape[1]):
            best = torch.where(x[:, i] > best, x[:, i], best)
        return best
