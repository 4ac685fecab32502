"""Layer normalisation in Triton: the row is read once and stays in the registers of eight warps."""

import torch
import triton
import triton.language as tl


@triton.jit
def layer_norm(x_ptr, y_ptr, weight_ptr, bias_ptr, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + start + at, mask=mask, other=0.0)
    mean = tl.sum(x) / columns
    centred = tl.where(mask, x - mean, 0.0)
    scale = tl.rsqrt(tl.sum(centred * centred) / columns + 1e-5)
    weight, bias = tl.load(weight_ptr + at, mask=mask), tl.load(bias_ptr + at, mask=mask)
    tl.store(y_ptr + start + at, centred * scale * weight + bias, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.bias = torch.nn.Parameter(torch.randn(columns))

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        layer_norm[(rows,)](x, y, self.weight, self.bias, columns, BLOCK=triton.next_power_of_2(columns), num_warps=8)
        return y
