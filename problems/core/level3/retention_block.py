"""Retention: scores weighted by a decay of the distance in place of a softmax, normalised by head and gated.

Category: attention.
Without a softmax the sum over the past can be taken in chunks with a state of 64 x 64 between them, which is linear in
the tokens; written as here it is a square for each head, most of it decayed to nothing.
Bound: 0.0881 GB, 0.12 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 8
TOKENS = 1024
WIDTH = 1024
HEADS = 16
SIZES = {
    "gpu": {"BATCH": 8, "TOKENS": 1024, "WIDTH": 1024, "HEADS": 16},
    "cpu": {"BATCH": 1, "TOKENS": 192, "WIDTH": 256, "HEADS": 4},
}


class Model(nn.Module):
    """y = out(silu(gate(x)) * rms_norm((q @ k.T * decay[head]**(row - column), row >= column) @ v))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width, bias=False)
        self.gate = nn.Linear(width, width)
        self.out = nn.Linear(width, width, bias=False)
        self.decay = nn.Parameter(1.0 - 2.0 ** (-4.0 - 4.0 * torch.arange(heads) / heads))
        nn.init.normal_(self.gate.weight, std=1.0 / width**0.5)
        nn.init.normal_(self.out.weight, std=0.5 / width**0.5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, WIDTH) to y of the same shape."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        place = torch.arange(tokens, device=x.device, dtype=x.dtype)
        distance = place.unsqueeze(1) - place
        weight = self.decay.view(-1, 1, 1) ** distance.clamp(min=0.0) * (distance >= 0)
        heads = (q @ k.transpose(2, 3) * weight) @ v
        heads = heads * torch.rsqrt(heads.pow(2).mean(dim=3, keepdim=True) + 1e-6)
        mixed = F.silu(self.gate(x)) * heads.transpose(1, 2).reshape(batch, tokens, width)
        y: torch.Tensor = self.out(mixed)
        return y


def get_inputs() -> list[torch.Tensor]:
    return [1.5 * torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HEADS]
