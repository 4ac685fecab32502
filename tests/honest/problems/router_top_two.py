"""A mixture's router: the two largest logits of each token, softmax over them, and which experts they are (int64)."""

import torch
from torch import nn

TOKENS = 131072
EXPERTS = 128
SIZES = {"gpu": {"TOKENS": 131072, "EXPERTS": 128}, "cpu": {"TOKENS": 4096, "EXPERTS": 61}}


class Model(nn.Module):
    """values, indices = the top two of logits, the larger first; weights = softmax(values)."""

    def forward(self, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Maps logits (TOKENS, EXPERTS) to (weights (TOKENS, 2), indices (TOKENS, 2))."""
        values, indices = torch.topk(logits, 2, dim=1)
        return torch.softmax(values, dim=1), indices


def get_inputs():
    return [torch.randn(TOKENS, EXPERTS)]


def get_init_inputs():
    return []
