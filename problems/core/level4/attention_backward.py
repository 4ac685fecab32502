"""The backward pass of attention: gradients of queries, keys and values.

Category: backward.
The probabilities are not kept but formed again from queries and keys; five products around a softmax's derivative,
whose row sums are a dot product of output and gradient. As operators six tensors the size of the scores come and go.
Bound: 0.117 GB, 0.0429 TFLOP.
"""

import torch
from torch import nn

BATCH = 4
HEADS = 16
TOKENS = 1024
WIDTH = 64
SIZES = {
    "gpu": {"BATCH": 4, "HEADS": 16, "TOKENS": 1024, "WIDTH": 64},
    "cpu": {"BATCH": 1, "HEADS": 4, "TOKENS": 192, "WIDTH": 32},
}


class Model(nn.Module):
    """The gradients for y = softmax(q @ k.T / sqrt(WIDTH)) @ v."""

    def forward(
        self, gradient: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Maps four tensors (BATCH, HEADS, TOKENS, WIDTH) to the gradients of q, k and v."""
        scale = q.shape[3] ** -0.5
        p = torch.softmax(q @ k.transpose(2, 3) * scale, dim=3)
        dp = gradient @ v.transpose(2, 3)
        ds = p * (dp - (dp * p).sum(dim=3, keepdim=True)) * scale
        return ds @ k, ds.transpose(2, 3) @ q, p.transpose(2, 3) @ gradient


def get_inputs() -> list[torch.Tensor]:
    shape = (BATCH, HEADS, TOKENS, WIDTH)
    return [0.8 * torch.randn(shape), 0.8 * torch.randn(shape), torch.randn(shape), 0.6 * torch.randn(shape)]


def get_init_inputs() -> list[int]:
    return []
