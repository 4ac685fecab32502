"""Four gated, dilated, causal layers of a WaveNet with their skip sum.

Category: architecture.
Each layer is a thin product over two shifted views of its input, a gate and two more thin products; a block that keeps
a stretch of time with its past on the chip can run several layers before anything is written.
Bound: 0.394 GB, 0.0881 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 16
CHANNELS = 64
SKIP = 128
STEPS = 24000
SIZES = {
    "gpu": {"BATCH": 16, "CHANNELS": 64, "SKIP": 128, "STEPS": 24000},
    "cpu": {"BATCH": 1, "CHANNELS": 16, "SKIP": 32, "STEPS": 1500},
}


class Model(nn.Module):
    """For dilations 1, 2, 4, 8: g = tanh(a) * sigmoid(b) with (a, b) = conv(h); h += residual(g); skip += skips(g)."""

    def __init__(self, channels: int, skip: int) -> None:
        super().__init__()
        self.gates = nn.ModuleList([nn.Conv1d(channels, 2 * channels, kernel_size=2, dilation=2**i) for i in range(4)])
        self.residuals = nn.ModuleList([nn.Conv1d(channels, channels, kernel_size=1) for _ in range(4)])
        self.skips = nn.ModuleList([nn.Conv1d(channels, skip, kernel_size=1) for _ in range(4)])
        for layer in (*self.gates, *self.residuals, *self.skips):
            nn.init.normal_(layer.weight, std=1.0 / layer.weight[0].numel() ** 0.5)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps x (BATCH, CHANNELS, STEPS) to h of its shape and the skip sum (BATCH, SKIP, STEPS)."""
        h, total = x, torch.zeros((), dtype=x.dtype, device=x.device)
        for layer, (gate, residual, skip) in enumerate(zip(self.gates, self.residuals, self.skips, strict=True)):
            a, b = gate(F.pad(h, (2**layer, 0))).chunk(2, dim=1)
            g = torch.tanh(a) * torch.sigmoid(b)
            h, total = h + residual(g), total + skip(g)
        return h, total


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, CHANNELS, STEPS)]


def get_init_inputs() -> list[int]:
    return [CHANNELS, SKIP]
