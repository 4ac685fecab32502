"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/cross_entropy.py"


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        largest = logits.amax(dim=1, keepdim=True)
        shift = torch.log(torch.exp(logits - largest).sum(dim=1)) + largest[:, 0]
        picked = logits.gather(1, targets[:, None])[:, 0]
        return (shift - picked).sum() / logits.shape[0]
