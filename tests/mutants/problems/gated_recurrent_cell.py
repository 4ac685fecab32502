"""One step of a GRU."""

import torch
from torch import nn

BATCH = 31
WIDTH = 19
HIDDEN = 27


class Model(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.cell = nn.GRUCell(width, hidden)

    def forward(self, x, h):
        return self.cell(x, h)


def get_inputs():
    return [torch.randn(BATCH, WIDTH), torch.randn(BATCH, HIDDEN)]


def get_init_inputs():
    return [WIDTH, HIDDEN]
