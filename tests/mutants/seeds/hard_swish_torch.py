"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/hard_swish.py"


class ModelNew(nn.Module):
    def forward(self, x):
        return x * torch.clamp(x + 3.0, min=0.0, max=6.0) / 6.0
