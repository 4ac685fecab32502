"""The sum and the normalisation as operators of the library."""

import torch


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x, residual):
        total = x + residual
        return total * torch.rsqrt(total.pow(2).mean(dim=1, keepdim=True) + 1e-5) * self.weight, total
