"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "core/level2/linear_gelu_scale"


class ModelNew(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        # Bounded and away from one: no feature can go without its factor.
        self.scale = nn.Parameter(0.5 + torch.rand(features_out))

    def forward(self, x):
        t = x @ self.linear.weight.T + self.linear.bias
        return 0.5 * t * (1.0 + torch.erf(t * 0.70710678)) * self.scale
