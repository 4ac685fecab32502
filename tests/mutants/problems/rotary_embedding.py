"""Rotates pairs of features by angles that grow with the position."""

import torch
from torch import nn

BATCH = 3
TOKENS = 45
WIDTH = 26


class Model(nn.Module):
    def forward(self, x):
        tokens, half = x.shape[1], x.shape[2] // 2
        position = torch.arange(tokens, dtype=x.dtype, device=x.device)
        frequency = 10000.0 ** (-torch.arange(half, dtype=x.dtype, device=x.device) / half)
        angle = position[:, None] * frequency
        a, b = x[..., :half], x[..., half:]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], dim=2)


def get_inputs():
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs():
    return []
