"""Products of pairs of matrices."""

import torch
from torch import nn

BATCH = 5
M = 33
K = 47
N = 29


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.rand(BATCH, M, K), torch.rand(BATCH, K, N)]


def get_init_inputs():
    return []
