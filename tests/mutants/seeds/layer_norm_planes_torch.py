"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/layer_norm_planes.py"


class ModelNew(nn.Module):
    def __init__(self, height, width):
        super().__init__()
        self.norm = nn.LayerNorm((height, width))

    def forward(self, x):
        mean = x.mean(dim=(1, 2), keepdim=True)
        variance = (x - mean).square().mean(dim=(1, 2), keepdim=True)
        return (x - mean) * torch.rsqrt(variance + 1e-5) * self.norm.weight + self.norm.bias
