"""A post-norm encoder layer: self-attention over all tokens, a feed-forward layer, two normalisations.

Category: architecture.
Six products and seven passes between them. Scores are as large as all the activations together when they are written
out; normalisations, residuals, bias and ReLU all sit at the edges of products.
Bound: 0.0797 GB, 0.12 TFLOP.
"""

import torch
from torch import nn

BATCH = 32
TOKENS = 512
WIDTH = 512
HEADS = 8
HIDDEN = 2048
SIZES = {
    "gpu": {"BATCH": 32, "TOKENS": 512, "WIDTH": 512, "HEADS": 8, "HIDDEN": 2048},
    "cpu": {"BATCH": 2, "TOKENS": 96, "WIDTH": 128, "HEADS": 4, "HIDDEN": 256},
}


class Model(nn.Module):
    """h = norm1(x + out(attention(x))); y = norm2(h + down(relu(up(h))))."""

    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm1 = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        self.norm2 = nn.LayerNorm(width)
        nn.init.normal_(self.qkv.weight, std=1.0 / width**0.5)
        for norm in (self.norm1, self.norm2):
            nn.init.uniform_(norm.weight, 0.5, 1.5)
            nn.init.normal_(norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, WIDTH) to y of the same shape."""
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attention = torch.softmax(q @ k.transpose(2, 3) / q.shape[3] ** 0.5, dim=3) @ v
        h = self.norm1(x + self.out(attention.transpose(1, 2).reshape(batch, tokens, width)))
        y: torch.Tensor = self.norm2(h + self.down(torch.relu(self.up(h))))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HEADS, HIDDEN]
