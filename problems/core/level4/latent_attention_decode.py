"""One step of decoding over a compressed cache: all heads share one latent vector a token.

Category: attention.
Keys and values are two linear maps of the same latent, which are moved to the query and to the output, so that the
cache is read once for scores and sum together. The operators read it twice. A rotary part is added to the scores.
Bound: 1.22 GB, 0.0185 TFLOP.
"""

import torch
from torch import nn

BATCH = 64
HEADS = 16
TOKENS = 8192
LATENT = 512
ROTARY = 64
WIDTH = 128
SIZES = {
    "gpu": {"BATCH": 64, "HEADS": 16, "TOKENS": 8192, "LATENT": 512, "ROTARY": 64, "WIDTH": 128},
    "cpu": {"BATCH": 4, "HEADS": 4, "TOKENS": 256, "LATENT": 96, "ROTARY": 32, "WIDTH": 48},
}


class Model(nn.Module):
    """s = (q @ key) @ cache.T + q_rotary @ rotary.T; y = (softmax(s / scale) @ cache) @ value, by head."""

    def __init__(self, heads: int, latent: int, width: int) -> None:
        super().__init__()
        self.key = nn.Parameter(torch.randn(heads, width, latent) / latent**0.5)
        self.value = nn.Parameter(torch.randn(heads, latent, width) / latent**0.5 * 2.0)

    def forward(
        self, q: torch.Tensor, q_rotary: torch.Tensor, cache: torch.Tensor, rotary: torch.Tensor
    ) -> torch.Tensor:
        """Maps q (BATCH, HEADS, WIDTH), q_rotary (BATCH, HEADS, ROTARY), cache (BATCH, TOKENS, LATENT), rotary to y."""
        inner = torch.einsum("bhw,hwl->bhl", q, self.key)
        scores = inner @ cache.transpose(1, 2) + q_rotary @ rotary.transpose(1, 2)
        p = torch.softmax(scores / (q.shape[2] + q_rotary.shape[2]) ** 0.5, dim=2)
        return torch.einsum("bhl,hlw->bhw", p @ cache, self.value)


def get_inputs() -> list[torch.Tensor]:
    cache = torch.randn(BATCH, TOKENS, LATENT)
    rotary = torch.randn(BATCH, TOKENS, ROTARY)
    return [0.8 * torch.randn(BATCH, HEADS, WIDTH), 0.8 * torch.randn(BATCH, HEADS, ROTARY), cache, rotary]


def get_init_inputs() -> list[int]:
    return [HEADS, LATENT, WIDTH]
