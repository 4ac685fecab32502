"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/masked_cumsum.py"


class ModelNew(nn.Module):
    def forward(self, x, mask):
        return torch.where(mask, x, 0.0).cumsum(dim=1)
