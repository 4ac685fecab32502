"""Scaled dot-product attention over earlier tokens."""

import torch
import torch.nn.functional as F
from torch import nn

BATCH = 2
HEADS = 3
TOKENS = 37
WIDTH = 16


class Model(nn.Module):
    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(BATCH, HEADS, TOKENS, WIDTH) for _ in range(3)]


def get_init_inputs():
    return []
