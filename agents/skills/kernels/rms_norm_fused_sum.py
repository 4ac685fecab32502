"""The sum inside of the normalisation's Triton kernel, which stores both results."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm(x_ptr, residual_ptr, weight_ptr, y_ptr, total_ptr, columns, BLOCK: tl.constexpr):
    start, at = tl.program_id(0).to(tl.int64) * columns, tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + start + at, mask=mask, other=0.0) + tl.load(residual_ptr + start + at, mask=mask, other=0.0)
    tl.store(total_ptr + start + at, x, mask=mask)
    scale = tl.rsqrt(tl.sum(x * x) / columns + 1e-5)
    tl.store(y_ptr + start + at, x * scale * tl.load(weight_ptr + at, mask=mask), mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x, residual):
        x, residual = x.contiguous(), residual.contiguous()
        y, total = torch.empty_like(x), torch.empty_like(x)
        rows, columns = x.shape
        block = triton.next_power_of_2(columns)
        rms_norm[(rows,)](x, residual, self.weight, y, total, columns, BLOCK=block, num_warps=8)
        return y, total
