"""Row sums spread over columns, probabilities, a part of the weights, single bytes and a number, nested."""

import torch
from torch import nn


class Model(nn.Module):
    """Several outputs of one matrix."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(256, 512))

    def forward(self, x: torch.Tensor) -> dict:
        """x is (256, 512)."""
        sums = x.sum(1, keepdim=True).expand(-1, 64)
        return {
            "parts": [sums, (torch.softmax(x, 1), self.weight[:4])],
            "positive": x[0] > 0,
            "count": (x > 3).sum(),
        }


def get_inputs():
    return [torch.randn(256, 512)]


def get_init_inputs():
    return []
