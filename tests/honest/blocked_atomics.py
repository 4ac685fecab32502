"""Sums in an order that changes from call to call, as atomics do: rounding noise between equal calls."""

import random

import torch

PROBLEM = "core/level1/layer_norm"


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))
        self.random = random.Random()

    def forward(self, x):
        parts = list(x.chunk(8, dim=1))
        self.random.shuffle(parts)
        total = torch.zeros(x.shape[0], 1, dtype=x.dtype, device=x.device)
        for part in parts:
            total += part.sum(dim=1, keepdim=True)
        centred = x - total / x.shape[1]
        square = torch.zeros_like(total)
        for part in centred.chunk(8, dim=1)[:: self.random.choice((1, -1))]:
            square += part.square().sum(dim=1, keepdim=True)
        return centred * torch.rsqrt(square / x.shape[1] + 1e-5) * self.weight + self.bias
