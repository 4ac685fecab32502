"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/logsumexp.py"


class ModelNew(nn.Module):
    def forward(self, x):
        largest = x.amax(dim=1, keepdim=True)
        return (largest + torch.log(torch.exp(x - largest).sum(dim=1, keepdim=True)))[:, 0]
