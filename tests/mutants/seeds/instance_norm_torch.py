"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/instance_norm.py"


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels)

    def forward(self, x):
        mean = x.mean(dim=(2, 3), keepdim=True)
        variance = (x - mean).square().mean(dim=(2, 3), keepdim=True)
        return (x - mean) / torch.sqrt(variance + 1e-5)
