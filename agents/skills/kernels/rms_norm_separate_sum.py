"""The sum by an operator of the library, the normalisation in one Triton kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def rms_norm(x_ptr, weight_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    start, at = tl.program_id(0).to(tl.int64) * columns, tl.arange(0, BLOCK)
    x = tl.load(x_ptr + start + at, mask=at < columns, other=0.0)
    scale = tl.rsqrt(tl.sum(x * x) / columns + 1e-5)
    tl.store(y_ptr + start + at, x * scale * tl.load(weight_ptr + at, mask=at < columns), mask=at < columns)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x, residual):
        total = x + residual
        y = torch.empty_like(total)
        rows, columns = total.shape
        rms_norm[(rows,)](total, self.weight, y, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return y, total
