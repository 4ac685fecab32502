"""One step of decoding over a cache of 8-bit keys and values.

Category: quantisation.
Every byte of the cache is read once for one query a head: the bound is the codes, a quarter of what a cache of floats
takes, and PyTorch writes those floats out first. Scales go by token and head, and can be moved past the product.
Bound: 0.556 GB, 0.00429 TFLOP.
"""

import torch
from torch import nn

BATCH = 64
HEADS = 8
GROUP = 4
TOKENS = 4096
WIDTH = 128
SIZES = {
    "gpu": {"BATCH": 64, "HEADS": 8, "GROUP": 4, "TOKENS": 4096, "WIDTH": 128},
    "cpu": {"BATCH": 4, "HEADS": 2, "GROUP": 4, "TOKENS": 256, "WIDTH": 64},
}


class Model(nn.Module):
    """y = softmax(q @ (k * k_scale).T / sqrt(WIDTH)) @ (v * v_scale), each head of k and v for a group of queries."""

    def forward(
        self, q: torch.Tensor, k: torch.Tensor, k_scale: torch.Tensor, v: torch.Tensor, v_scale: torch.Tensor
    ) -> torch.Tensor:
        """Maps q (BATCH, HEADS, GROUP, WIDTH), codes (BATCH, HEADS, TOKENS, WIDTH) and scales to y of q's shape."""
        scores = q @ (k.to(q.dtype) * k_scale.unsqueeze(3)).transpose(2, 3) / q.shape[3] ** 0.5
        return torch.softmax(scores, dim=3) @ (v.to(q.dtype) * v_scale.unsqueeze(3))


def get_inputs() -> list[torch.Tensor]:
    shape = (BATCH, HEADS, TOKENS, WIDTH)
    codes = [torch.randint(-127, 128, shape, dtype=torch.int8) for _ in range(2)]
    scales = [(0.5 + torch.rand(BATCH, HEADS, TOKENS)) / 60.0 for _ in range(2)]
    return [1.2 * torch.randn(BATCH, HEADS, GROUP, WIDTH), codes[0], scales[0], codes[1], scales[1]]


def get_init_inputs() -> list[int]:
    return []
