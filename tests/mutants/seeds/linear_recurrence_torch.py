"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/linear_recurrence.py"


class ModelNew(nn.Module):
    def forward(self, x, gate):
        y = torch.empty_like(x)
        h = torch.zeros_like(x[:, 0])
        for t in range(x.shape[1]):
            h = torch.sigmoid(gate[:, t]) * h + x[:, t]
            y[:, t] = h
        return y
