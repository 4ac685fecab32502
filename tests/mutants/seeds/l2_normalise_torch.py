"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/l2_normalise.py"


class ModelNew(nn.Module):
    def forward(self, x):
        squares = (x * x).sum(dim=1, keepdim=True)
        return x / torch.sqrt(squares)
