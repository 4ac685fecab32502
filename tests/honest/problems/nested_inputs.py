"""A list of tensors of different lengths, a tuple of numbers, None and a flag among the inputs."""

import torch
from torch import nn

ROWS = 4096
WIDTHS = (2049, 4096, 1023)
SIZES = {"gpu": {"ROWS": 16384}, "cpu": {"ROWS": 256}}


class Model(nn.Module):
    """y = the parts side by side, each times its factor, doubled when asked to; a bias that may be missing."""

    def forward(
        self, parts: list[torch.Tensor], factors: tuple[float, ...], bias: torch.Tensor | None, doubled: bool
    ) -> torch.Tensor:
        """Maps parts (ROWS, WIDTHS[i]) to y (ROWS, sum of WIDTHS)."""
        y = torch.cat([part * factor for part, factor in zip(parts, factors, strict=True)], dim=1)
        y = y if bias is None else y + bias
        return 2 * y if doubled else y


def get_inputs():
    return [[torch.randn(ROWS, width) for width in WIDTHS], (0.5, -1.25, 3.0), None, True]


def get_init_inputs():
    return []
