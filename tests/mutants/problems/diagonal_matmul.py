"""A diagonal matrix, given as a vector, times a matrix."""

import torch
from torch import nn

N = 67
M = 41


class Model(nn.Module):
    def forward(self, a, b):
        return torch.diag(a) @ b


def get_inputs():
    return [torch.rand(N), torch.rand(N, M)]


def get_init_inputs():
    return []
