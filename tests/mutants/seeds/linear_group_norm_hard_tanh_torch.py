"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/linear_group_norm_hard_tanh.py"


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out, groups):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        self.norm = nn.GroupNorm(groups, features_out)

    def forward(self, x):
        y = x @ self.linear.weight.T + self.linear.bias
        groups = y.view(y.shape[0], self.norm.num_groups, -1)
        centred = groups - groups.mean(dim=2, keepdim=True)
        variance = (centred * centred).mean(dim=2, keepdim=True)
        normal = (centred / torch.sqrt(variance + 1e-5)).view(y.shape)
        return torch.clamp(normal * self.norm.weight + self.norm.bias, min=-2.0, max=2.0)
