"""Softplus, log(1 + exp(x))."""

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 53
COLUMNS = 71


class Model(nn.Module):
    def forward(self, x):
        return F.softplus(x)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
