"""Layer normalisation in Triton: mean, variance and result each read the row."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm(x_ptr, y_ptr, weight_ptr, bias_ptr, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    inner = tl.arange(0, BLOCK)
    sums = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, columns, BLOCK):
        sums += tl.load(x_ptr + start + first + inner, mask=first + inner < columns, other=0.0)
    mean = tl.sum(sums) / columns
    squares = tl.zeros((BLOCK,), tl.float32)
    for first in range(0, columns, BLOCK):
        mask = first + inner < columns
        x = tl.load(x_ptr + start + first + inner, mask=mask, other=0.0)
        squares += tl.where(mask, (x - mean) * (x - mean), 0.0)
    scale = tl.rsqrt(tl.sum(squares) / columns + 1e-5)
    for first in range(0, columns, BLOCK):
        at = first + inner
        mask = at < columns
        x = tl.load(x_ptr + start + at, mask=mask)
        weight, bias = tl.load(weight_ptr + at, mask=mask), tl.load(bias_ptr + at, mask=mask)
        tl.store(y_ptr + start + at, (x - mean) * scale * weight + bias, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        layer_norm[(rows,)](x, y, self.weight, self.bias, columns, BLOCK=1024, num_warps=4)
        return y
