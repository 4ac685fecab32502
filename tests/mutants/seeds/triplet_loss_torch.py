"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/triplet_loss.py"


class ModelNew(nn.Module):
    def forward(self, anchor, positive, negative):
        near = torch.sqrt((anchor - positive + 1e-6).square().sum(dim=1))
        far = torch.sqrt((anchor - negative + 1e-6).square().sum(dim=1))
        return torch.clamp(near - far + 1.0, min=0.0).mean()
