"""Parameters under other names, drawn in the reference's order: the seed alone makes them equal."""

import torch

PROBLEM = "core/level1/layer_norm"


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.gamma = torch.nn.Parameter(torch.randn(columns))
        self.beta = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x):
        variance, mean = torch.var_mean(x, dim=1, keepdim=True, correction=0)
        return torch.addcmul(self.beta, (x - mean) * torch.rsqrt(variance + 1e-5), self.gamma)
