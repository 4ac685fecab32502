"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/group_norm.py"


class ModelNew(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        groups = x.reshape(x.shape[0], self.norm.num_groups, -1)
        mean = groups.mean(dim=2, keepdim=True)
        variance = ((groups - mean) ** 2).mean(dim=2, keepdim=True)
        normal = ((groups - mean) * torch.rsqrt(variance + 1e-5)).reshape(x.shape)
        return normal * self.norm.weight.view(1, -1, 1, 1) + self.norm.bias.view(1, -1, 1, 1)
