"""Triton: a fixed number of programs that step through the rows, each row in registers from its mean to its output."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level1/layer_norm"


@triton.jit
def layer_norm_kernel(x_ptr, weight_ptr, bias_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr):
    column = tl.arange(0, BLOCK)
    mask = column < columns
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0)
    bias = tl.load(bias_ptr + column, mask=mask, other=0.0)
    row = tl.program_id(0).to(tl.int64)
    while row < rows:
        first = row * columns
        x = tl.load(x_ptr + first + column, mask=mask, other=0.0)
        mean = tl.sum(x, axis=0) / columns
        centred = tl.where(mask, x - mean, 0.0)
        scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
        tl.store(y_ptr + first + column, centred * scale * weight + bias, mask=mask)
        row += tl.num_programs(0)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        layer_norm_kernel[(min(rows, 1024),)](
            x, self.weight, self.bias, y, rows, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8
        )
        return y
