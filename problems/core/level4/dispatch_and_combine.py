"""Tokens laid out by expert, scaled there, and summed back where they came from.

Category: routing.
Each token goes to four of 64 experts: a stable sort of the choices, a gather, a scale that depends on the expert, and a
sum of four rows in another order. All of it is traffic, and the copy in the middle is four times the input.
Bound: 0.54 GB.
"""

import torch
from torch import nn

TOKENS = 65536
WIDTH = 1024
EXPERTS = 64
SIZES = {"gpu": {"TOKENS": 65536, "WIDTH": 1024, "EXPERTS": 64}, "cpu": {"TOKENS": 1024, "WIDTH": 128, "EXPERTS": 16}}


class Model(nn.Module):
    """sorted = x in the order of its experts, each row times scale[expert]; y[i] = sum of weight * its four rows."""

    def __init__(self, experts: int, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(0.5 + torch.rand(experts, width))

    def forward(self, x: torch.Tensor, expert: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Maps x (TOKENS, WIDTH), expert and weight (TOKENS, 4) to y of x's shape."""
        flat = expert.flatten()
        order = torch.argsort(flat, stable=True)
        rows = x[order // 4] * self.scale[flat[order]]
        back = torch.empty_like(rows).index_copy(0, order, rows)
        return (back.view(*expert.shape, -1) * weight.unsqueeze(2)).sum(dim=1)


def get_inputs() -> list[torch.Tensor]:
    expert = (EXPERTS * torch.rand(TOKENS, 4) ** 2).long().clamp(max=EXPERTS - 1)
    return [torch.randn(TOKENS, WIDTH), expert, 0.5 * torch.softmax(torch.randn(TOKENS, 4), dim=1)]


def get_init_inputs() -> list[int]:
    return [EXPERTS, WIDTH]
