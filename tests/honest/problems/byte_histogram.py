"""How often each byte occurs: unsigned bytes in, int64 counts out."""

import torch
from torch import nn

COUNT = 268435456
SIZES = {"gpu": {"COUNT": 268435456}, "cpu": {"COUNT": 262144}}


class Model(nn.Module):
    """n[v] = number of i with x[i] = v."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (COUNT,) to n (256,)."""
        return torch.bincount(x, minlength=256)


def get_inputs():
    return [torch.randint(0, 251, (COUNT,), dtype=torch.uint8)]


def get_init_inputs():
    return []
