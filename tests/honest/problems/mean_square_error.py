"""The mean square of a difference: a single number (0-d) out of many elements."""

import torch
import torch.nn.functional as F
from torch import nn

ROWS = 32768
COLUMNS = 8192
SIZES = {"gpu": {"ROWS": 32768, "COLUMNS": 8192}, "cpu": {"ROWS": 1024, "COLUMNS": 1025}}


class Model(nn.Module):
    """e = mean of (prediction - target)**2."""

    def forward(self, prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """Maps prediction and target (ROWS, COLUMNS) to e ()."""
        return F.mse_loss(prediction, target)


def get_inputs():
    return [torch.randn(ROWS, COLUMNS), torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return []
