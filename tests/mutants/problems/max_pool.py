"""3x3 maxima, stride 2, padded by one."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 3
CHANNELS = 5
HEIGHT = 17
WIDTH = 19


class Model(nn.Module):
    def forward(self, x):
        return F.max_pool2d(x, 3, stride=2, padding=1)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)]


def get_init_inputs():
    return []
