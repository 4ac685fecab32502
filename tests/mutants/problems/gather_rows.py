"""Rows of a matrix by index, each times a factor."""

import torch
from torch import nn

ROWS = 51
COLUMNS = 23
PICKED = 83
DOMAIN = ["real", (0, ROWS), "real"]


class Model(nn.Module):
    def forward(self, x, index, factor):
        return x[index] * factor[:, None]


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randint(0, ROWS, (PICKED,)), torch.rand(PICKED)]


def get_init_inputs():
    return []
