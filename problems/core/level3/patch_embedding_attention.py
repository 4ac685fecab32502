"""The front of a vision transformer: patches, a class token, positions, one attention layer.

Category: architecture.
The patches are a convolution whose windows do not overlap, hence one product over a rearranged image; the class token
makes the token count odd (197), which fills no tile; the attention is bidirectional with short rows.
Bound: 0.167 GB, 0.164 TFLOP.
"""

import torch
from torch import nn

BATCH = 128
SIZE = 224
PATCH = 16
WIDTH = 768
HEADS = 12
SIZES = {
    "gpu": {"BATCH": 128, "SIZE": 224, "PATCH": 16, "WIDTH": 768, "HEADS": 12},
    "cpu": {"BATCH": 4, "SIZE": 64, "PATCH": 16, "WIDTH": 192, "HEADS": 3},
}


class Model(nn.Module):
    """h = class token and patches, plus positions; y = h + out(attention(norm(h)))."""

    def __init__(self, size: int, patch: int, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.patches = nn.Conv2d(3, width, kernel_size=patch, stride=patch)
        self.token = nn.Parameter(0.5 * torch.randn(1, 1, width))
        self.position = nn.Parameter(0.5 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        nn.init.uniform_(self.norm.weight, 0.5, 1.5)
        nn.init.normal_(self.norm.bias, std=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, 3, SIZE, SIZE) to y (BATCH, (SIZE / PATCH)**2 + 1, WIDTH)."""
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat((self.token.expand(x.shape[0], -1, -1), h), dim=1) + self.position
        batch, tokens, width = h.shape
        q, k, v = self.qkv(self.norm(h)).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attention = torch.softmax(q @ k.transpose(2, 3) / q.shape[3] ** 0.5, dim=3) @ v
        y: torch.Tensor = h + self.out(attention.transpose(1, 2).reshape(batch, tokens, width))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, 3, SIZE, SIZE)]


def get_init_inputs() -> list[int]:
    return [SIZE, PATCH, WIDTH, HEADS]
