"""A 3x3 convolution of each channel by itself, padded by one."""

import torch
from torch import nn

BATCH = 3
CHANNELS = 7
HEIGHT = 13
WIDTH = 15


class Model(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return [CHANNELS]
