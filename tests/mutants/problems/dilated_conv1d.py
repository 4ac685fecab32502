"""A one-dimensional convolution of width 3 and dilation 2."""

import torch
from torch import nn

BATCH = 3
CHANNELS_IN = 5
CHANNELS_OUT = 7
LENGTH = 61


class Model(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, 3, dilation=2)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS_IN, LENGTH)]


def get_init_inputs():
    return [CHANNELS_IN, CHANNELS_OUT]
