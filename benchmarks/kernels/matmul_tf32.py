"""Honest: a tiled Triton product on TF32 tensor cores. Square matrices, sizes of 128."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul(a, b, c, n, block: tl.constexpr, depth: tl.constexpr):
    rows = tl.program_id(0) * block + tl.arange(0, block)
    columns = tl.program_id(1) * block + tl.arange(0, block)
    inner = tl.arange(0, depth)
    sums = tl.zeros((block, block), tl.float32)
    for k in range(0, n, depth):
        left = tl.load(a + rows[:, None] * n + (k + inner)[None, :])
        right = tl.load(b + (k + inner)[:, None] * n + columns[None, :])
        sums = tl.dot(left, right, sums, input_precision="tf32")
    tl.store(c + rows[:, None] * n + columns[None, :], sums)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        n = a.shape[0]
        c = torch.empty_like(a)
        matmul[(n // 128, n // 128)](a, b, c, n, 128, 32, num_warps=8, num_stages=3)
        return c
