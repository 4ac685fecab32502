"""A scan in log2(n) steps."""

import torch
from torch import nn

PROBLEM = "mutants/problems/cumprod.py"


class ModelNew(nn.Module):
    def forward(self, x):
        y = x.clone()
        step = 1
        while step < x.shape[1]:
            y = torch.cat([y[:, :step], y[:, step:] * y[:, :-step]], dim=1)
            step = step * 2
        return y
