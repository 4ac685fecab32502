"""A transformer block that a condition modulates: six vectors scale, shift and gate its two halves.

Category: architecture.
Six vectors for each image, used between all products: every one of them is another pass over the tokens when it is an
operator. They belong into the products' prologues and epilogues.
Bound: 0.171 GB, 0.271 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
TOKENS = 256
WIDTH = 1152
HEADS = 16
SIZES = {
    "gpu": {"BATCH": 32, "TOKENS": 256, "WIDTH": 1152, "HEADS": 16},
    "cpu": {"BATCH": 2, "TOKENS": 64, "WIDTH": 192, "HEADS": 4},
}


class Model(nn.Module):
    """x += gate1 * attention(modulate1(norm(x))); x += gate2 * mlp(modulate2(norm(x)))."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.modulation = nn.Linear(width, 6 * width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        nn.init.normal_(self.qkv.weight, std=0.7 / width**0.5)

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, WIDTH) and condition (BATCH, WIDTH) to y of x's shape."""
        batch, tokens, width = x.shape
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(F.silu(condition)).unsqueeze(1).chunk(6, dim=2)
        h = F.layer_norm(x, (width,), eps=1e-6) * (1.0 + scale1) + shift1
        q, k, v = self.qkv(h).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attention = torch.softmax(q @ k.transpose(2, 3) / q.shape[3] ** 0.5, dim=3) @ v
        x = x + gate1 * self.out(attention.transpose(1, 2).reshape(batch, tokens, width))
        h = F.layer_norm(x, (width,), eps=1e-6) * (1.0 + scale2) + shift2
        y: torch.Tensor = x + gate2 * self.down(F.gelu(self.up(h), approximate="tanh"))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH), 0.7 * torch.randn(BATCH, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HEADS]
