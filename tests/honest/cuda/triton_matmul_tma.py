"""Triton: tiles fetched by the tensor memory accelerator through descriptors of the inputs' memory; TF32 products."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

PROBLEM = "core/level1/matmul"


@triton.jit
def matmul_kernel(a, b, c_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    row, column = tl.program_id(0) * M, tl.program_id(1) * N
    total = tl.zeros((M, N), dtype=tl.float32)
    for p in range(0, k, K):  # what lies outside a descriptor's tensor reads as zero
        total = tl.dot(a.load([row, p]), b.load([p, column]), total, input_precision="tf32")
    rows = row + tl.arange(0, M)
    columns = column + tl.arange(0, N)
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.store(c_ptr + rows[:, None].to(tl.int64) * n + columns[None, :], total, mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        a, b, c = a.contiguous(), b.contiguous(), a.new_empty(m, n)
        a_tiles, b_tiles = TensorDescriptor.from_tensor(a, [128, 32]), TensorDescriptor.from_tensor(b, [32, 128])
        grid = (triton.cdiv(m, 128), triton.cdiv(n, 128))
        matmul_kernel[grid](a_tiles, b_tiles, c, m, n, k, M=128, N=128, K=32, num_warps=8, num_stages=3)
        return c
