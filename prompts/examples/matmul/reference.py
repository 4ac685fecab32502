import torch
from torch import nn

M = 2048
K = 4096
N = 1000
SIZES = {"gpu": {"M": 2048, "K": 4096, "N": 1000}, "cpu": {"M": 256, "K": 320, "N": 200}}


class Model(nn.Module):
    def forward(self, a, b):
        return torch.matmul(a, b)


def get_inputs():
    scale = 0.2 / K**0.25
    return [scale * torch.randn(M, K), scale * torch.randn(K, N)]


def get_init_inputs():
    return []
