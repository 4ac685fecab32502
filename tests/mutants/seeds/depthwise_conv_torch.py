"""PyTorch operators."""

import torch
import torch.nn.functional as F
from torch import nn

PROBLEM = "mutants/problems/depthwise_conv.py"


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x):
        padded = F.pad(x, (1, 1, 1, 1))
        y = torch.zeros_like(x) + self.conv.bias.view(1, -1, 1, 1)
        for u in range(3):
            for v in range(3):
                taps = padded[:, :, u : u + x.shape[2], v : v + x.shape[3]]
                y = y + taps * self.conv.weight[:, 0, u, v].view(1, -1, 1, 1)
        return y
