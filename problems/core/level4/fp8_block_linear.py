"""A product of 8-bit floats (e4m3), scaled in blocks: 1 x 128 of the activations, 128 x 128 of the weights.

Category: quantisation.
Bytes are e4m3 codes. A scale changes every 128 steps of the sum, so that partial sums must be scaled on the way, in
fp32, and cannot be left to a tensor core to the end. PyTorch's way writes both operands out as floats.
Bound: 0.186 GB, 0.275 TFLOP.
"""

import torch
from torch import nn

ROWS = 8192
INNER = 4096
COLUMNS = 4096
SIZES = {"gpu": {"ROWS": 8192, "INNER": 4096, "COLUMNS": 4096}, "cpu": {"ROWS": 256, "INNER": 512, "COLUMNS": 384}}


class Model(nn.Module):
    """y = (x * x_scale) @ (codes * scale).T, codes read as e4m3, scales by block."""

    codes: torch.Tensor

    def __init__(self, inner: int, columns: int) -> None:
        super().__init__()
        weight = torch.randn(columns // 128, 128, inner // 128, 128) * (
            0.3 + torch.rand(columns // 128, 1, inner // 128, 1)
        )
        scale = weight.abs().amax(dim=(1, 3), keepdim=True) / 448.0
        codes = (weight / scale).view(columns, inner).to(torch.float8_e4m3fn)
        self.register_buffer("codes", codes.view(torch.uint8))
        self.scale = nn.Parameter(scale.view(columns // 128, inner // 128) / inner**0.5)

    def forward(self, x: torch.Tensor, x_scale: torch.Tensor) -> torch.Tensor:
        """Maps x (ROWS, INNER), e4m3 in bytes, and x_scale (ROWS, INNER / 128) to y (ROWS, COLUMNS)."""
        a = x.view(torch.float8_e4m3fn).to(x_scale.dtype) * x_scale.repeat_interleave(128, dim=1)
        scale = self.scale.repeat_interleave(128, dim=0).repeat_interleave(128, dim=1)
        return a @ (self.codes.view(torch.float8_e4m3fn).to(x_scale.dtype) * scale).T


def get_inputs() -> list[torch.Tensor]:
    x = torch.randn(ROWS, INNER // 128, 128) * (0.2 + 2.0 * torch.rand(ROWS, INNER // 128, 1))
    scale = x.abs().amax(dim=2) / 448.0
    codes = (x / scale.unsqueeze(2)).view(ROWS, INNER).to(torch.float8_e4m3fn)
    return [codes.view(torch.uint8), scale]


def get_init_inputs() -> list[int]:
    return [INNER, COLUMNS]
