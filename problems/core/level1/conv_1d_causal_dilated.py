"""A causal convolution over time that looks back in steps of eight.

Category: convolution.
The taps lie eight steps apart and never look ahead, so that the input is padded on one side only. As a matrix product
each tap is a shifted view of the same input; a library copies or transforms the input first.
Bound: 1.07 GB, 0.206 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
CHANNELS_IN = 256
CHANNELS_OUT = 256
STEPS = 16384
SIZES = {
    "gpu": {"BATCH": 32, "CHANNELS_IN": 256, "CHANNELS_OUT": 256, "STEPS": 16384},
    "cpu": {"BATCH": 2, "CHANNELS_IN": 32, "CHANNELS_OUT": 32, "STEPS": 2048},
}


class Model(nn.Module):
    """y[t] = bias + sum over k of weight[k] @ x[t - 8 * (2 - k)], zero before the first step."""

    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, kernel_size=3, dilation=8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, CHANNELS_IN, STEPS) to y (BATCH, CHANNELS_OUT, STEPS)."""
        y: torch.Tensor = self.conv(F.pad(x, (16, 0)))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS_IN, STEPS)]


def get_init_inputs() -> list[int]:
    return [CHANNELS_IN, CHANNELS_OUT]
