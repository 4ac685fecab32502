"""Inputs by keyword, a boolean mask and a plain number among them; the constructor takes keywords too."""

import torch
from torch import nn

BATCH = 512
TOKENS = 512
WIDTH = 1024
SIZES = {
    "gpu": {"BATCH": 512, "TOKENS": 512, "WIDTH": 1024},
    "cpu": {"BATCH": 32, "TOKENS": 67, "WIDTH": 192},
}


class Model(nn.Module):
    """y[b] = scale * (mean over the tokens t with mask[b, t] of x[b, t]) * weight."""

    def __init__(self, *, width: int, floor: float) -> None:
        super().__init__()
        self.floor = floor
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, *, x: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, WIDTH) and mask (BATCH, TOKENS) to y (BATCH, WIDTH)."""
        count = mask.sum(dim=1, keepdim=True).clamp(min=self.floor)
        return scale * (x * mask.unsqueeze(-1)).sum(dim=1) / count * self.weight


def get_inputs():
    mask = torch.rand(BATCH, TOKENS) < 0.6
    return {"x": torch.randn(BATCH, TOKENS, WIDTH), "mask": mask, "scale": 1.5}


def get_init_inputs():
    return {"width": WIDTH, "floor": 1.0}
