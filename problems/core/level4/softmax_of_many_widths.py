"""The softmax of five matrices of different width, by one module.

Category: dynamic shapes.
Widths of 3 to 40001, most of them no multiple of anything: one kernel has to serve them all, with a path for rows that
fit a warp, a block, or neither, and no load beyond a row's end. What is tuned for one of them loses on another.
Bound: 2.68 GB.
"""

import torch
from torch import nn

ELEMENTS = 67108864
SIZES = {"gpu": {"ELEMENTS": 67108864}, "cpu": {"ELEMENTS": 262144}}


class Model(nn.Module):
    """Each matrix's softmax over its rows, times its width to the power of three quarters."""

    def forward(self, matrices: list[torch.Tensor]) -> list[torch.Tensor]:
        """Maps five matrices (rows, width) to as many of the same shapes."""
        return [torch.softmax(x, dim=1) * x.shape[1] ** 0.75 for x in matrices]


def get_inputs() -> list[list[torch.Tensor]]:
    widths = [3, 65, 1000, 4097, 40001]
    return [[2.0 * torch.randn(ELEMENTS // width + 1, width) for width in widths]]


def get_init_inputs() -> list[int]:
    return []
