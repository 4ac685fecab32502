"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/huber_loss.py"


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        distance = torch.abs(predictions - targets)
        return torch.where(distance < 1.0, 0.5 * distance * distance, distance - 0.5).sum() / distance.numel()
