"""The router of a mixture of experts: logits, softmax, the best eight, their weights made to sum to one.

Category: routing.
A product with only 128 outputs, so that all of a row's logits fit the registers of one warp, where the softmax and the
selection can happen without another kernel; as operators it is six launches over small tensors.
Bound: 1.08 GB, 0.0687 TFLOP.
"""

import torch
from torch import nn

TOKENS = 131072
WIDTH = 2048
EXPERTS = 128
SIZES = {"gpu": {"TOKENS": 131072, "WIDTH": 2048, "EXPERTS": 128}, "cpu": {"TOKENS": 2048, "WIDTH": 256, "EXPERTS": 32}}


class Model(nn.Module):
    """The eight largest of softmax(x @ weight.T + bias), divided by their sum, from the largest down."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        nn.init.normal_(self.router.weight, std=1.5 / width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (TOKENS, WIDTH) to the weights (TOKENS, 8)."""
        best = torch.topk(torch.softmax(self.router(x), dim=1), k=8, dim=1).values
        return best / best.sum(dim=1, keepdim=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, WIDTH) * (0.3 + 1.5 * torch.rand(TOKENS, 1))]


def get_init_inputs() -> list[int]:
    return [WIDTH, EXPERTS]
