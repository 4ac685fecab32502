"""The spectrum of real signals: a complex output."""

import torch
from torch import nn

SIGNALS = 65536
SAMPLES = 1000
SIZES = {"gpu": {"SIGNALS": 65536, "SAMPLES": 1000}, "cpu": {"SIGNALS": 300, "SAMPLES": 250}}


class Model(nn.Module):
    """y[s, f] = sum over t of x[s, t] * exp(-2 pi i f t / SAMPLES) / sqrt(SAMPLES)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (SIGNALS, SAMPLES) to y (SIGNALS, SAMPLES // 2 + 1), complex."""
        return torch.fft.rfft(x, norm="ortho")


def get_inputs():
    return [torch.randn(SIGNALS, SAMPLES)]


def get_init_inputs():
    return []
