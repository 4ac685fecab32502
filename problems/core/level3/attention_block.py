"""Causal self-attention with normalised queries and keys, an output projection, and a residual.

Category: attention.
At the GPU sizes (32 sequences of 512 tokens, width 1024, 16 heads of 64) the scores are 32 * 16 * 512**2 = 134e6
float32 elements, 0.54 GB. Operator by operator they are written, masked, normalised and read (6 passes, 3.2 GB: 0.75 ms
at 4.3 TB/s); the projections take 2 * 16384 * 1024 * 4096 = 1.4e11 operations, 0.4 ms at 350 TFLOP/s (TF32); the
normalisation and reordering of queries, keys and values (0.07 GB each) take the rest. About 2 ms in all.
Normalised queries and keys keep the scores near unit variance whatever the input's scale, so that attention is never
close to a plain average.
Bound: 0.151 GB, 0.172 TFLOP.
"""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 32
TOKENS = 512
WIDTH = 1024
HEADS = 16
SIZES = {
    "gpu": {"BATCH": 32, "TOKENS": 512, "WIDTH": 1024, "HEADS": 16},
    "cpu": {"BATCH": 2, "TOKENS": 128, "WIDTH": 256, "HEADS": 4},
}


class Model(nn.Module):
    """y = x + out(softmax(rms_norm(q) @ rms_norm(k).T / sqrt(head width), over earlier tokens) @ v)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.query_weight = nn.Parameter(0.5 + torch.rand(width // heads))
        self.key_weight = nn.Parameter(0.5 + torch.rand(width // heads))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Maps x (BATCH, TOKENS, WIDTH) to y of the same shape."""
        batch, tokens, width = x.shape
        head_width = width // self.heads
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, head_width).permute(2, 0, 3, 1, 4)
        q = F.rms_norm(q, (head_width,), self.query_weight, 1e-6)
        k = F.rms_norm(k, (head_width,), self.key_weight, 1e-6)
        scores = (q / head_width**0.5) @ k.transpose(-2, -1)
        later = torch.ones(tokens, tokens, dtype=torch.bool, device=x.device).triu(diagonal=1)
        attention = torch.softmax(scores.masked_fill(later, float("-inf")), dim=-1)
        heads = (attention @ v).transpose(1, 2).reshape(batch, tokens, width)
        return torch.add(x, self.out(heads))


def get_inputs() -> list[torch.Tensor]:
    return [0.3 * torch.randn(BATCH, TOKENS, WIDTH)]


def get_init_inputs() -> list[int]:
    return [WIDTH, HEADS]
