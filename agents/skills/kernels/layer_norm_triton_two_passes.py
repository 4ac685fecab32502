"""Layer normalisation in Triton: both statistics in one pass, about the first value."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm(x_ptr, y_ptr, weight_ptr, bias_ptr, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    inner = tl.arange(0, BLOCK)
    # Sums about a value of the row: about zero the variance would cancel where the mean is large.
    about = tl.load(x_ptr + start)
    sums, squares = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(0, columns, BLOCK):
        mask = first + inner < columns
        x = tl.where(mask, tl.load(x_ptr + start + first + inner, mask=mask, other=0.0) - about, 0.0)
        sums += x
        squares += x * x
    shift = tl.sum(sums) / columns
    mean = about + shift
    scale = tl.rsqrt(tl.sum(squares) / columns - shift * shift + 1e-5)
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
