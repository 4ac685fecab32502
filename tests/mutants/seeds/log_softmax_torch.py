"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/log_softmax.py"


class ModelNew(nn.Module):
    def forward(self, x):
        largest = x.amax(dim=1, keepdim=True)
        shifted = x - largest
        return shifted - torch.log(torch.exp(shifted).sum(dim=1, keepdim=True))
