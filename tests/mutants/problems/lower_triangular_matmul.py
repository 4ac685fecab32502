"""The product of two lower triangular matrices."""

import torch
from torch import nn

N = 53
DOMAIN = ["lower", "lower"]


class Model(nn.Module):
    def forward(self, a, b):
        return torch.tril(a @ b)


def get_inputs():
    return [torch.rand(N, N).tril(), torch.rand(N, N).tril()]


def get_init_inputs():
    return []
