"""The sum over the middle axis, which stays."""

import torch
from torch import nn

BATCH = 7
ROWS = 59
COLUMNS = 31


class Model(nn.Module):
    def forward(self, x):
        return torch.sum(x, dim=1, keepdim=True)


def get_inputs():
    return [torch.rand(BATCH, ROWS, COLUMNS)]


def get_init_inputs():
    return []
