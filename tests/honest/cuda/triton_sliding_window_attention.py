"""Triton: attention over the blocks of keys that a window reaches, and no others, with TF32 products."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level4/sliding_window_attention"


@triton.jit
def attention_kernel(
    q_ptr, k_ptr, v_ptr, y_ptr, tokens, window, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr
):
    first = tl.program_id(1).to(tl.int64) * tokens * WIDTH
    channel = tl.arange(0, WIDTH)
    query_at = tl.program_id(0) * QUERIES + tl.arange(0, QUERIES)
    query_mask = query_at[:, None] < tokens
    lines = first + query_at[:, None] * WIDTH + channel[None, :]
    query = tl.load(q_ptr + lines, mask=query_mask, other=0.0) * (1.4426950408889634 / WIDTH**0.5)  # for exp2
    top = tl.full((QUERIES,), -1.0e30, dtype=tl.float32)  # finite: a first block may be outside of a query's window
    weights = tl.zeros((QUERIES,), dtype=tl.float32)
    total = tl.zeros((QUERIES, WIDTH), dtype=tl.float32)
    oldest = tl.maximum(tl.program_id(0) * QUERIES - window + 1, 0)
    for begin in range(oldest // KEYS * KEYS, min((tl.program_id(0) + 1) * QUERIES, tokens), KEYS):
        key_at = begin + tl.arange(0, KEYS)
        at = first + key_at[:, None] * WIDTH + channel[None, :]
        key = tl.load(k_ptr + at, mask=key_at[:, None] < tokens, other=0.0)
        scores = tl.dot(query, tl.trans(key), input_precision="tf32")
        distance = query_at[:, None] - key_at[None, :]
        seen = (distance >= 0) & (distance < window)
        scores = tl.where(seen, scores, float("-inf"))
        highest = tl.maximum(top, tl.max(scores, axis=1))
        correction = tl.exp2(top - highest)
        powers = tl.exp2(scores - highest[:, None])
        weights = weights * correction + tl.sum(powers, axis=1)
        value = tl.load(v_ptr + at, mask=key_at[:, None] < tokens, other=0.0)
        total = tl.dot(powers, value, total * correction[:, None], input_precision="tf32")
        top = highest
    tl.store(y_ptr + lines, total / weights[:, None], mask=query_mask)


class ModelNew(torch.nn.Module):
    def __init__(self, window):
        super().__init__()
        self.window = window

    def forward(self, q, k, v):
        batch, heads, tokens, width = q.shape
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        y = torch.empty_like(q)
        grid = (triton.cdiv(tokens, 64), batch * heads)
        attention_kernel[grid](
            q, k, v, y, tokens, self.window, WIDTH=width, QUERIES=64, KEYS=32, num_warps=4, num_stages=2
        )
        return y
