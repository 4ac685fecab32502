"""Group normalisation as PyTorch initialises it."""

import torch
from torch import nn

BATCH = 3
CHANNELS = 12
HEIGHT = 9
WIDTH = 11
GROUPS = 4


class Model(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS, GROUPS]
