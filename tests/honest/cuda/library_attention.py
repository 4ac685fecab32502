"""The library's fused attention (memory-efficient in float32), chosen by a context manager."""

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

PROBLEM = "core/level3/attention_block"


class ModelNew(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.query_weight = torch.nn.Parameter(0.5 + torch.rand(width // heads))
        self.key_weight = torch.nn.Parameter(0.5 + torch.rand(width // heads))

    def forward(self, x):
        batch, tokens, width = x.shape
        q, k, v = self.qkv(x).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q = F.rms_norm(q, q.shape[-1:], self.query_weight, 1e-6)
        k = F.rms_norm(k, k.shape[-1:], self.key_weight, 1e-6)
        with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return x + self.out(y.transpose(1, 2).reshape(batch, tokens, width))
