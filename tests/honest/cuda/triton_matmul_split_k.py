"""Triton: the inner dimension over several programs whose sums meet by atomic additions: noise between equal calls."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level1/matmul"


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k, slice_length, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    rows = (tl.program_id(0) * M + tl.arange(0, M)).to(tl.int64)
    columns = (tl.program_id(1) * N + tl.arange(0, N)).to(tl.int64)
    begin = tl.program_id(2) * slice_length
    end = min(begin + slice_length, k)
    total = tl.zeros((M, N), dtype=tl.float32)
    for p in range(begin, end, K):
        inner = p + tl.arange(0, K)
        a_mask = (rows[:, None] < m) & (inner[None, :] < end)
        b_mask = (inner[:, None] < end) & (columns[None, :] < n)
        a = tl.load(a_ptr + rows[:, None] * k + inner[None, :], mask=a_mask, other=0.0)
        b = tl.load(b_ptr + inner[:, None].to(tl.int64) * n + columns[None, :], mask=b_mask, other=0.0)
        total = tl.dot(a, b, total, input_precision="tf32")
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    tl.atomic_add(c_ptr + rows[:, None] * n + columns[None, :], total, mask=mask, sem="relaxed")


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (m, k), n = a.shape, b.shape[1]
        a, b, c = a.contiguous(), b.contiguous(), a.new_zeros(m, n)
        grid = (triton.cdiv(m, 128), triton.cdiv(n, 128), 4)
        matmul_kernel[grid](a, b, c, m, n, k, triton.cdiv(k, 4), M=128, N=128, K=32, num_warps=8, num_stages=3)
        return c
