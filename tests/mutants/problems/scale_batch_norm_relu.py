"""Batch normalisation by running statistics after a scale for each channel, then ReLU; all as initialised."""

import torch
from torch import nn

BATCH = 3
CHANNELS = 12
HEIGHT = 9
WIDTH = 11


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        self.norm = nn.BatchNorm2d(channels).eval()

    def forward(self, x):
        return torch.relu(self.norm(x * self.scale))


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
