"""Mean and standard deviation over the middle axis of a tensor.

Category: reduction.
The reduced axis is not the contiguous one: neighbouring threads must take neighbouring features while each walks down
the axis, and with few features per batch entry the axis has to be split among blocks and combined again. Two results
come out of one read.
Bound: 2.15 GB.
"""

import torch
from torch import nn

BATCH = 64
STEPS = 8192
FEATURES = 1024
SIZES = {"gpu": {"BATCH": 64, "STEPS": 8192, "FEATURES": 1024}, "cpu": {"BATCH": 4, "STEPS": 512, "FEATURES": 256}}


class Model(nn.Module):
    """Mean and population standard deviation of x over its steps."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps x (BATCH, STEPS, FEATURES) to mean and deviation, each (BATCH, FEATURES)."""
        variance, mean = torch.var_mean(x, dim=1, correction=0)
        return mean, torch.sqrt(variance + 1e-6)


def get_inputs() -> list[torch.Tensor]:
    level = torch.randn(BATCH, 1, FEATURES)
    return [level + (0.3 + torch.rand(BATCH, 1, FEATURES)) * torch.randn(BATCH, STEPS, FEATURES)]


def get_init_inputs() -> list[int]:
    return []
