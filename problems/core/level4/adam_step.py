"""A step of Adam with decoupled weight decay, the second moment kept as its root.

Category: optimiser step.
Four tensors in, three out, and a dozen operations on each element: one pass moves seven tensors, PyTorch's operators
some forty. Nothing is in place here: the new state is returned.
Bound: 1.88 GB.
"""

import torch
from torch import nn

SIZE = 67108864
SIZES = {"gpu": {"SIZE": 67108864}, "cpu": {"SIZE": 1048576}}


class Model(nn.Module):
    """m = 0.9 m + 0.1 g; r = sqrt(0.99 r**2 + 0.01 g**2); p = p - 0.05 * (m / 0.7 / (r + 0.1) + 0.1 * p)."""

    def forward(
        self, p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, r: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Maps p, g, m and r (SIZE,) to the new p, m and r."""
        m = 0.9 * m + 0.1 * g
        r = torch.sqrt(0.99 * r.square() + 0.01 * g.square())
        return p - 0.05 * (m / 0.7 / (r + 0.1) + 0.1 * p), m, r


def get_inputs() -> list[torch.Tensor]:
    size = 0.05 + torch.rand(SIZE)  # gradients differ in size from weight to weight
    return [
        torch.randn(SIZE),
        size * torch.randn(SIZE),
        0.5 * size * torch.randn(SIZE),
        size * (0.8 + 0.4 * torch.rand(SIZE)),
    ]


def get_init_inputs() -> list[int]:
    return []
