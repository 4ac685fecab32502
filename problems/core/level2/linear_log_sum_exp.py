"""A linear layer and the log-sum-exp of each of its rows.

Category: fusion.
A matrix product of which one number a row is left: its output, 32 times as large as its input, is needed nowhere.
Partial maxima and sums of each tile are combined at the end; otherwise the logits go to memory and back.
Bound: 0.0672 GB, 0.206 TFLOP.
"""

import math

import torch
from torch import nn

BATCH = 8192
FEATURES_IN = 512
FEATURES_OUT = 24576
SIZES = {
    "gpu": {"BATCH": 8192, "FEATURES_IN": 512, "FEATURES_OUT": 24576},
    "cpu": {"BATCH": 256, "FEATURES_IN": 128, "FEATURES_OUT": 1536},
}


class Model(nn.Module):
    """y[i] = logsumexp over j of (x @ weight.T + bias)[i, j], less log(FEATURES_OUT)."""

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        nn.init.normal_(self.linear.weight, std=1.0 / features_in**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, FEATURES_IN) to y (BATCH,)."""
        return torch.logsumexp(self.linear(x), dim=1) - math.log(self.linear.out_features)


def get_inputs() -> list[torch.Tensor]:
    norm = 0.5 + 1.5 * torch.rand(BATCH, 1)  # rows of different certainty
    return [norm * torch.randn(BATCH, FEATURES_IN)]


def get_init_inputs() -> list[int]:
    return [FEATURES_IN, FEATURES_OUT]
