"""PyTorch operators."""

import torch
from torch import nn

PROBLEM = "mutants/problems/batch_norm_eval.py"


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels).eval()

    def forward(self, x):
        shape = (1, x.shape[1], 1, 1)
        scale = self.norm.weight / torch.sqrt(self.norm.running_var + 1e-5)
        shift = self.norm.bias - self.norm.running_mean * scale
        return x * scale.view(shape) + shift.view(shape)
