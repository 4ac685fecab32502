"""Everything in float64 and one rounding at the end: further from the float32 reference than from the truth."""

import copy

import torch
import torch.nn.functional as F

PROBLEM = "core/level3/attention_block"


class ModelNew(torch.nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.query_weight = torch.nn.Parameter(0.5 + torch.rand(width // heads))
        self.key_weight = torch.nn.Parameter(0.5 + torch.rand(width // heads))
        self.exact = None

    def forward(self, x):
        if self.exact is None:
            weights = (self.qkv, self.out, self.query_weight, self.key_weight)
            # A tuple: a module would become a child, with parameters of its own in the state_dict.
            self.exact = tuple(copy.deepcopy(weight).to(torch.float64) for weight in weights)
        qkv, out, query_weight, key_weight = self.exact
        batch, tokens, width = x.shape
        q, k, v = qkv(x.double()).view(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q = F.rms_norm(q, q.shape[-1:], query_weight, 1e-6)
        k = F.rms_norm(k, k.shape[-1:], key_weight, 1e-6)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return (x + out(y.transpose(1, 2).reshape(batch, tokens, width))).to(x.dtype)
