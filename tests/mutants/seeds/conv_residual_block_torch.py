"""PyTorch operators."""

import torch
import torch.nn.functional as F
from torch import nn

PROBLEM = "core/level3/conv_residual_block"


class ModelNew(nn.Module):
    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        # A fresh GroupNorm scales by one and shifts by zero, which nobody would miss.
        nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        nn.init.normal_(self.norm.bias, std=0.1)

    def forward(self, x):
        y = F.conv2d(x, self.conv1.weight, padding=1)
        groups = y.view(y.shape[0], self.norm.num_groups, -1)
        mean = groups.mean(dim=2, keepdim=True)
        variance = (groups - mean).square().mean(dim=2, keepdim=True)
        y = ((groups - mean) * torch.rsqrt(variance + 1e-5)).view(x.shape)
        y = torch.relu(y * self.norm.weight.view(1, -1, 1, 1) + self.norm.bias.view(1, -1, 1, 1))
        y = F.conv2d(y, self.conv2.weight, self.conv2.bias, padding=1)
        return torch.relu(x + y)
