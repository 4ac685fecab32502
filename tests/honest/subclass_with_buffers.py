"""A subclass of a base module of its own, with buffers that the reference does not have, and a helper module."""

import torch

PROBLEM = "core/level1/layer_norm"


class Statistics(torch.nn.Module):
    def __init__(self, epsilon):
        super().__init__()
        self.register_buffer("epsilon", torch.tensor(epsilon))
        self.register_buffer("calls", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x):
        self.calls += 1
        centred = x - x.mean(dim=-1, keepdim=True)
        return centred * torch.rsqrt(centred.square().mean(dim=-1, keepdim=True) + self.epsilon)


class Affine(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))


class ModelNew(Affine):
    def __init__(self, columns: int):
        super().__init__(columns)
        self.statistics = Statistics(1e-5)

    def forward(self, x):
        return self.statistics(x) * self.weight + self.bias
