"""The experts of a mixture, each token to one of them, with some experts much more in demand than others.

Category: routing.
The operators run every expert on every token and keep one result in eight. Sorted by expert it is a few products of
very different height, of which some may be empty; the work has to be spread without waiting for the tallest.
Bound: 0.0755 GB, 0.103 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

TOKENS = 4096
WIDTH = 768
HIDDEN = 1024
EXPERTS = 8
SIZES = {
    "gpu": {"TOKENS": 4096, "WIDTH": 768, "HIDDEN": 1024, "EXPERTS": 8},
    "cpu": {"TOKENS": 256, "WIDTH": 96, "HIDDEN": 128, "EXPERTS": 4},
}


class Model(nn.Module):
    """y[i] = weight[i] * down[e] @ silu(up[e] @ x[i]) with e = expert[i]."""

    def __init__(self, width: int, hidden: int, experts: int) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.randn(experts, width, hidden) / width**0.5)
        self.down = nn.Parameter(0.7 * torch.randn(experts, hidden, width) / hidden**0.5)

    def forward(self, x: torch.Tensor, expert: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Maps x (TOKENS, WIDTH), expert and weight (TOKENS,) to y of x's shape."""
        y = torch.zeros_like(x)
        for index in range(self.up.shape[0]):
            result = F.silu(x @ self.up[index]) @ self.down[index]
            y = torch.where((expert == index).unsqueeze(1), result, y)
        return y * weight.unsqueeze(1)


def get_inputs() -> list[torch.Tensor]:
    expert = (EXPERTS * torch.rand(TOKENS) ** 2.5).long().clamp(max=EXPERTS - 1)
    return [torch.randn(TOKENS, WIDTH), expert, 0.5 + torch.rand(TOKENS)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HIDDEN, EXPERTS]
