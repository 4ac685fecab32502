"""A matrix times a vector."""

import torch
from torch import nn

M = 61
K = 1031


class Model(nn.Module):
    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, 1)]


def get_init_inputs():
    return []
