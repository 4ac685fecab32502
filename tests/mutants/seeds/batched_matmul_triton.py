"""Blocks of 32 by 32, 16 along k, masked at the edges."""

from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/batched_matmul.py"


@triton.jit
def batched_matmul(a_ptr, b_ptr, c_ptr, m, n, k, BLOCK: tl.constexpr, STEP: tl.constexpr):
    batch = tl.program_id(2)
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, STEP):
        inner = start + tl.arange(0, STEP)
        a = tl.load(
            a_ptr + batch * m * k + row[:, None] * k + inner[None, :],
            mask=(row[:, None] < m) & (inner[None, :] < k),
            other=0.0,
        )
        b = tl.load(
            b_ptr + batch * k * n + inner[:, None] * n + column[None, :],
            mask=(inner[:, None] < k) & (column[None, :] < n),
            other=0.0,
        )
        total += tl.dot(a, b)
    tl.store(
        c_ptr + batch * m * n + row[:, None] * n + column[None, :],
        total,
        mask=(row[:, None] < m) & (column[None, :] < n),
    )


class ModelNew(nn.Module):
    def forward(self, a, b):
        batch, m, k = a.shape
        n = b.shape[2]
        c = a.new_empty(batch, m, n)
        grid = (triton.cdiv(m, 32), triton.cdiv(n, 32), batch)
        batched_matmul[grid](a, b, c, m, n, k, BLOCK=32, STEP=16)
        return c
