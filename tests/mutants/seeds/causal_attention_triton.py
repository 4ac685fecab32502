"""One program for 16 queries of a head, 16 keys at a time."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/causal_attention.py"


@triton.jit
def causal_attention(q_ptr, k_ptr, v_ptr, y_ptr, tokens, factor, WIDTH: tl.constexpr, BLOCK: tl.constexpr):
    first = tl.program_id(0) * BLOCK
    head = tl.program_id(1)
    query = first + tl.arange(0, BLOCK)
    feature = tl.arange(0, WIDTH)
    where = head * tokens * WIDTH + query[:, None] * WIDTH + feature[None, :]
    q = tl.load(q_ptr + where, mask=query[:, None] < tokens, other=0.0)
    top = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    y = tl.zeros((BLOCK, WIDTH), dtype=tl.float32)
    for start in range(0, first + BLOCK, BLOCK):
        key = start + tl.arange(0, BLOCK)
        inside = head * tokens * WIDTH + key[:, None] * WIDTH + feature[None, :]
        k = tl.load(k_ptr + inside, mask=key[:, None] < tokens, other=0.0)
        v = tl.load(v_ptr + inside, mask=key[:, None] < tokens, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * factor
        scores = tl.where(key[None, :] <= query[:, None], scores, -float("inf"))
        new = tl.maximum(top, tl.max(scores, axis=1))
        weights = tl.exp(scores - new[:, None])
        shrink = tl.exp(top - new)
        total = total * shrink + tl.sum(weights, axis=1)
        y = y * shrink[:, None] + tl.dot(weights, v)
        top = new
    tl.store(y_ptr + where, y / total[:, None], mask=query[:, None] < tokens)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        y = torch.empty_like(q)
        batch, heads, tokens, width = q.shape
        grid = (triton.cdiv(tokens, 16), batch * heads)
        causal_attention[grid](q, k, v, y, tokens, width**-0.5, WIDTH=16, BLOCK=16)
        return y
