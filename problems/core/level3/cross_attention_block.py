"""Attention from image tokens to the tokens of a text, with a projection and a residual.

Category: attention.
There are many queries and only 77 keys: scores are small rows that fit registers, keys and values fit shared memory
whole, and their number is no multiple of anything. Text shorter than the rest is padded and must get no weight.
Bound: 0.346 GB, 0.069 TFLOP.
"""

import torch
from torch import nn

BATCH = 32
TOKENS = 4096
KEYS = 77
WIDTH = 320
CONTEXT = 768
HEADS = 8
SIZES = {
    "gpu": {"BATCH": 32, "TOKENS": 4096, "KEYS": 77, "WIDTH": 320, "CONTEXT": 768, "HEADS": 8},
    "cpu": {"BATCH": 2, "TOKENS": 256, "KEYS": 77, "WIDTH": 128, "CONTEXT": 96, "HEADS": 4},
}


class Model(nn.Module):
    """y = x + out(softmax(query(x) @ key(text).T / sqrt(head width)) @ value(text)), padding left out."""

    def __init__(self, width: int, context: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(context, width, bias=False)
        self.value = nn.Linear(context, width, bias=False)
        self.out = nn.Linear(width, width)
        nn.init.normal_(self.query.weight, std=0.8 / width**0.5)
        nn.init.normal_(self.key.weight, std=1.0 / context**0.5)
        nn.init.normal_(self.value.weight, std=0.6 / context**0.5)

    def forward(self, x: torch.Tensor, text: torch.Tensor, length: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, WIDTH), text (BATCH, KEYS, CONTEXT) and length (BATCH,) to y of x's shape."""
        q, k, v = (
            t.view(*t.shape[:2], self.heads, -1).transpose(1, 2)
            for t in (self.query(x), self.key(text), self.value(text))
        )
        padding = torch.arange(text.shape[1], device=x.device) >= length.view(-1, 1, 1, 1)
        scores = (q @ k.transpose(2, 3) / q.shape[3] ** 0.5).masked_fill(padding, float("-inf"))
        y: torch.Tensor = x + self.out((torch.softmax(scores, dim=3) @ v).transpose(1, 2).reshape(x.shape))
        return y


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(BATCH, TOKENS, WIDTH), torch.randn(BATCH, KEYS, CONTEXT), torch.randint(4, KEYS + 1, (BATCH,))]


def get_init_inputs() -> list[int]:
    return [WIDTH, CONTEXT, HEADS]
