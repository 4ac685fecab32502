"""A product of 8-bit integers with a scale for each row and each column.

Category: quantisation.
The contract is exact: codes are multiplied and summed as integers, and only the sum is scaled, so that the order of
summation does not matter (sums stay below 2**24, and floats hold them, too). PyTorch's way goes through floats of four
times the bytes; integer tensor cores read the codes themselves.
Bound: 0.185 GB, 0.275 TFLOP.
"""

import torch
from torch import nn

ROWS = 8192
INNER = 4096
COLUMNS = 4096
SIZES = {"gpu": {"ROWS": 8192, "INNER": 4096, "COLUMNS": 4096}, "cpu": {"ROWS": 256, "INNER": 384, "COLUMNS": 384}}


class Model(nn.Module):
    """y = (x @ codes.T) * row_scale * column_scale + bias, x and codes integers of 8 bits."""

    codes: torch.Tensor

    def __init__(self, inner: int, columns: int) -> None:
        super().__init__()
        weight = torch.randn(columns, inner)
        scale = weight.abs().amax(dim=1) / 127.0
        self.register_buffer("codes", torch.round(weight / scale.unsqueeze(1)).to(torch.int8))
        self.column_scale = nn.Parameter(scale)
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x: torch.Tensor, row_scale: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, INNER), int8, and row_scale (ROWS,) to y (ROWS, COLUMNS) in row_scale's type."""
        sums = x.to(row_scale.dtype) @ self.codes.to(row_scale.dtype).T
        return sums * row_scale.unsqueeze(1) * self.column_scale + self.bias


def get_inputs() -> list[torch.Tensor]:
    x = torch.randn(ROWS, INNER) * (0.2 + torch.rand(ROWS, 1))
    scale = x.abs().amax(dim=1, keepdim=True) / 127.0
    return [torch.round(x / scale).to(torch.int8), scale.squeeze(1) / INNER**0.5 * 4.0]


def get_init_inputs() -> list[int]:
    return [INNER, COLUMNS]
