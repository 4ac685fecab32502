"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/kl_divergence.py"


class ModelNew(nn.Module):
    def forward(self, a, b):
        p = a - torch.logsumexp(a, dim=1, keepdim=True)
        q = b - torch.logsumexp(b, dim=1, keepdim=True)
        return (torch.exp(q) * (q - p)).sum() / a.shape[0]
