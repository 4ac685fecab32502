"""A linear layer whose weights are 4-bit codes, two a byte, with a scale and a zero point for each group of 128.

Category: quantisation.
The even column's code is in the low half of a byte, the odd one's in the high half; weight = (code - zero) * scale.
With few rows the weights' bytes are the bound, an eighth of what PyTorch moves when it unpacks them to floats in memory
first.
Bound: 0.0718 GB, 0.015 TFLOP.
"""

import torch
from torch import nn

ROWS = 64
INNER = 8192
COLUMNS = 14336
SIZES = {"gpu": {"ROWS": 64, "INNER": 8192, "COLUMNS": 14336}, "cpu": {"ROWS": 16, "INNER": 512, "COLUMNS": 768}}


class Model(nn.Module):
    """y = x @ ((codes - zero) * scale).T, zero and scale by output and group of 128 inputs."""

    packed: torch.Tensor

    def __init__(self, inner: int, columns: int) -> None:
        super().__init__()
        groups = torch.randn(columns, inner // 128, 128) / inner**0.5
        low, high = groups.amin(dim=2, keepdim=True), groups.amax(dim=2, keepdim=True)
        scale = (high - low) / 15.0
        zero = torch.round(-low / scale)
        codes = (torch.round(groups / scale) + zero).clamp(0, 15).to(torch.uint8).view(columns, inner)
        self.register_buffer("packed", codes[:, 0::2] | (codes[:, 1::2] << 4))
        self.scale = nn.Parameter(scale)
        self.zero = nn.Parameter(zero)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, INNER) to y (ROWS, COLUMNS)."""
        codes = torch.stack((self.packed & 15, self.packed >> 4), dim=2).view(self.scale.shape[0], -1, 128)
        weight = (codes.to(x.dtype) - self.zero) * self.scale
        return x @ weight.flatten(1).T


def get_inputs() -> list[torch.Tensor]:
    return [2.0 * torch.randn(ROWS, INNER)]


def get_init_inputs() -> list[int]:
    return [INNER, COLUMNS]
