"""The backward pass of a SwiGLU gate whose two halves lie in one tensor.

Category: backward.
Pure traffic: three reads and two writes an element when it is one pass, and many more as operators. Gate and value lie
side by side in each row, as the product before leaves them, and their gradients must as well.
Bound: 1.85 GB.
"""

import torch
from torch import nn

ROWS = 16384
HIDDEN = 5632
SIZES = {"gpu": {"ROWS": 16384, "HIDDEN": 5632}, "cpu": {"ROWS": 512, "HIDDEN": 704}}


class Model(nn.Module):
    """The gradient of h = (a, b) for y = silu(a) * b, with y's gradient scaled for each feature."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(0.5 + torch.rand(hidden))

    def forward(self, gradient: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
        """Maps gradient (ROWS, HIDDEN) and h (ROWS, 2 * HIDDEN) to the gradient of h."""
        a, b = h.chunk(2, dim=1)
        gate = torch.sigmoid(a)
        inner = gradient * self.scale
        return torch.cat((inner * b * gate * (1.0 + a * (1.0 - gate)), inner * a * gate), dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(ROWS, HIDDEN), 1.5 * torch.randn(ROWS, 2 * HIDDEN)]


def get_init_inputs() -> list[int]:
    return [HIDDEN]
