"""A linear layer with its softmax over the features.

Category: fusion.
The softmax needs a whole row of the product before its first output, while a tile of the product holds only part of
one: partial maxima and sums must travel between tiles, or a second pass reads the logits again.
Bound: 0.688 GB, 0.275 TFLOP.
"""

import torch
from torch import nn

BATCH = 32768
FEATURES_IN = 1024
FEATURES_OUT = 4096
SIZES = {
    "gpu": {"BATCH": 32768, "FEATURES_IN": 1024, "FEATURES_OUT": 4096},
    "cpu": {"BATCH": 512, "FEATURES_IN": 256, "FEATURES_OUT": 512},
}


class Model(nn.Module):
    """y = softmax(x @ weight.T + bias) * FEATURES_OUT**0.5, over the features."""

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        nn.init.normal_(self.linear.weight, std=1.5 / features_in**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, FEATURES_IN) to y (BATCH, FEATURES_OUT)."""
        y: torch.Tensor = torch.softmax(self.linear(x), dim=1) * self.linear.out_features**0.5
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, FEATURES_IN)]


def get_init_inputs() -> list[int]:
    return [FEATURES_IN, FEATURES_OUT]
