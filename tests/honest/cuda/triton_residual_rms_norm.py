"""Triton: a row in registers, both results from one pass; the output is a slice of one allocation with the total."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level2/residual_rms_norm"
SPEEDUP_AT_LEAST = 1.5


@triton.jit
def rms_norm_kernel(x_ptr, residual_ptr, weight_ptr, y_ptr, total_ptr, columns, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    mask = column < columns
    total = tl.load(x_ptr + first + column, mask=mask, other=0.0)
    total += tl.load(residual_ptr + first + column, mask=mask, other=0.0)
    tl.store(total_ptr + first + column, total, mask=mask)
    scale = tl.rsqrt(tl.sum(total * total, axis=0) / columns + 1e-5)
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0)
    tl.store(y_ptr + first + column, total * scale * weight, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x, residual):
        rows, columns = x.shape
        x, residual = x.contiguous(), residual.contiguous()
        y, total = x.new_empty(2, rows, columns)
        block = triton.next_power_of_2(columns)
        rms_norm_kernel[(rows,)](x, residual, self.weight, y, total, columns, BLOCK=block, num_warps=8)
        return y, total
