"""Codes that are often -1, whose bytes are those of an output that nothing was written to."""

import torch
from torch import nn


class Model(nn.Module):
    """-1 where x is positive, else 0; and one code a row, nearly always -1."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps x (256, 256) to codes of the same shape and codes (256,)."""
        return torch.where(x > 0, -1, 0), (x.sum(1) > 40).int() - 1


def get_inputs():
    return [torch.randn(256, 256)]


def get_init_inputs():
    return []
