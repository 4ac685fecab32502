"""A linear layer, GELU, and a scale for each output feature.

Category: fusion.
At the GPU sizes (8192 x 4096 to 8192 features): 2 * 8192 * 4096 * 8192 = 5.5e11 operations, 1.6 ms at 350 TFLOP/s
(TF32). GELU and scale read and write the 0.27 GB result once each: 1.1 GB at 4.3 TB/s, another 0.25 ms. In all 1.8 ms.
Bound: 0.537 GB, 0.55 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 8192
FEATURES_IN = 4096
FEATURES_OUT = 8192
SIZES = {
    "gpu": {"BATCH": 8192, "FEATURES_IN": 4096, "FEATURES_OUT": 8192},
    "cpu": {"BATCH": 256, "FEATURES_IN": 512, "FEATURES_OUT": 1024},
}


class Model(nn.Module):
    """y = gelu(x @ weight.T + bias) * scale, with the exact (erf) GELU."""

    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        # Bounded and away from one: no feature can go without its factor.
        self.scale = nn.Parameter(0.5 + torch.rand(features_out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, FEATURES_IN) to y (BATCH, FEATURES_OUT)."""
        return F.gelu(self.linear(x)) * self.scale


def get_inputs() -> list[torch.Tensor]:
    return [0.15 * torch.randn(BATCH, FEATURES_IN)]


def get_init_inputs() -> list[int]:
    return [FEATURES_IN, FEATURES_OUT]
