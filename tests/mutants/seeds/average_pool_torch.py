"""PyTorch operators."""

import torch.nn.functional as F
from torch import nn

PROBLEM = "mutants/problems/average_pool.py"


class ModelNew(nn.Module):
    def forward(self, x):
        padded = F.pad(x, (1, 1, 1, 1))
        windows = padded.unfold(2, 3, 2).unfold(3, 3, 2)
        return windows.sum(dim=(4, 5)) / 9.0
