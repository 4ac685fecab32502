"""Layer normalisation over the last two axes, as PyTorch initialises it."""

import torch
from torch import nn

BATCH = 17
HEIGHT = 9
WIDTH = 13


class Model(nn.Module):
    def __init__(self, height, width):
        super().__init__()
        self.norm = nn.LayerNorm((height, width))

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(BATCH, HEIGHT, WIDTH)]


def get_init_inputs():
    return [HEIGHT, WIDTH]
