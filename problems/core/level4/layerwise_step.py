"""A step of momentum whose length is set for each layer by the norms of weights and gradient.

Category: optimiser step.
Two norms over each layer must be known before any of its elements can move: two passes at least, or a layer kept on the
chip between them. Layers are rows here, all of one size, and their results both weights and momentum.
Bound: 1.34 GB.
"""

import torch
from torch import nn

LAYERS = 256
SIZE = 262144
SIZES = {"gpu": {"LAYERS": 256, "SIZE": 262144}, "cpu": {"LAYERS": 16, "SIZE": 65536}}


class Model(nn.Module):
    """d = g + 0.01 p; m = 0.9 m + 0.2 * |p| / (|d| + 1e-3) * d; p = p - rate * m, norms and rates by layer."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.rate = nn.Parameter(0.1 + 0.2 * torch.rand(layers, 1))

    def forward(self, p: torch.Tensor, g: torch.Tensor, m: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps p, g and m (LAYERS, SIZE) to the new p and m."""
        d = g + 0.01 * p
        ratio = p.norm(dim=1, keepdim=True) / (d.norm(dim=1, keepdim=True) + 1e-3)
        m = 0.9 * m + 0.2 * ratio * d
        return p - self.rate * m, m


def get_inputs() -> list[torch.Tensor]:
    size = 0.3 + torch.rand(LAYERS, 1)
    return [size * torch.randn(LAYERS, SIZE), 0.1 * size * torch.randn(LAYERS, SIZE), 0.5 * torch.randn(LAYERS, SIZE)]


def get_init_inputs() -> list[int]:
    return [LAYERS]
