"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/cross_entropy_weighted.py"


class ModelNew(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(classes))

    def forward(self, logits, targets):
        keep = targets != -100
        classes = torch.where(keep, targets, 0)
        largest = logits.amax(dim=1, keepdim=True)
        shift = torch.log(torch.exp(logits - largest).sum(dim=1)) + largest[:, 0]
        picked = logits.gather(1, classes[:, None])[:, 0]
        return torch.where(keep, (shift - picked) * self.weight[classes], 0.0)
