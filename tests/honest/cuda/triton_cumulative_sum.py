"""Triton: a scan of each block and a carry from block to block, over rows of odd length."""

import torch
import triton
import triton.language as tl

PROBLEM = "honest/problems/cumulative_sum.py"
SPEEDUP_AT_LEAST = 1.4


@triton.jit
def cumulative_sum_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    carry = 0.0
    for begin in range(0, columns, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + first + column, mask=column < columns, other=0.0)
        tl.store(y_ptr + first + column, tl.cumsum(x, axis=0) + carry, mask=column < columns)
        carry += tl.sum(x, axis=0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        cumulative_sum_kernel[(rows,)](x, y, columns, BLOCK=1024, num_warps=4)
        return y
