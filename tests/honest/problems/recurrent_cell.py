"""One step of a recurrent cell, which returns its new state twice: as the output and as the state."""

import torch
from torch import nn

BATCH = 4096
WIDTH = 1024
SIZES = {"gpu": {"BATCH": 4096, "WIDTH": 1024}, "cpu": {"BATCH": 64, "WIDTH": 128}}


class Model(nn.Module):
    """h = gru(x, state); the same tensor is both results."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.GRUCell(width, width)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps x and state (BATCH, WIDTH) to (h, h), both of that shape."""
        state = self.cell(x, state)
        return state, state


def get_inputs():
    return [torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)]


def get_init_inputs():
    return [WIDTH]
