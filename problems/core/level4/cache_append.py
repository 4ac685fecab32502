"""New keys, rotated by their positions, written into a cache of which the rest stays.

Category: state.
The cache is returned as a new tensor, so that all of it is copied and a few rows are other ones: where they go is data.
One pass copies or rotates each row; PyTorch's way rotates, copies all, then writes over.
Bound: 2.16 GB.
"""

import torch
from torch import nn

BATCH = 64
HEADS = 8
LENGTH = 4096
TOKENS = 64
WIDTH = 128
SIZES = {
    "gpu": {"BATCH": 64, "HEADS": 8, "LENGTH": 4096, "TOKENS": 64, "WIDTH": 128},
    "cpu": {"BATCH": 4, "HEADS": 2, "LENGTH": 256, "TOKENS": 16, "WIDTH": 64},
}


class Model(nn.Module):
    """cache[i, :, start[i] + t] = rotate(k[i, :, t], start[i] + t), pairs half a head apart."""

    def forward(self, cache: torch.Tensor, k: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Maps cache (BATCH, HEADS, LENGTH, WIDTH), k (BATCH, HEADS, TOKENS, WIDTH), start (BATCH,) to a new cache."""
        a, b = k.chunk(2, dim=3)
        place = start.unsqueeze(1) + torch.arange(k.shape[2], device=k.device)
        pairs = torch.arange(a.shape[3], device=k.device, dtype=k.dtype)
        angle = (place.unsqueeze(2) * 10000.0 ** (-pairs / a.shape[3])).unsqueeze(1)
        rotated = torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()), dim=3)
        index = place.view(place.shape[0], 1, -1, 1).expand_as(rotated)
        return cache.scatter(2, index, rotated)


def get_inputs() -> list[torch.Tensor]:
    start = (torch.rand(BATCH) * (LENGTH - TOKENS)).long()
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH), torch.randn(BATCH, HEADS, TOKENS, WIDTH), start]


def get_init_inputs() -> list[int]:
    return []
