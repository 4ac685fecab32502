"""Running sums of the elements that a mask selects."""

import torch
from torch import nn

ROWS = 23
COLUMNS = 187
DOMAIN = ["real", "boolean"]


class Model(nn.Module):
    def forward(self, x, mask):
        return torch.cumsum(x * mask, dim=1)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS), torch.randint(0, 2, (ROWS, COLUMNS)).bool()]


def get_init_inputs():
    return []
