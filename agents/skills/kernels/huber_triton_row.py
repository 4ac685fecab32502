"""The weighted Huber loss of each row in Triton: a row in the registers of sixteen warps."""

import torch
import triton
import triton.language as tl


@triton.jit
def huber(x_ptr, target_ptr, weight_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * columns
    at = tl.arange(0, BLOCK)
    mask = at < columns
    x = tl.load(x_ptr + start + at, mask=mask, other=0.0)
    target = tl.load(target_ptr + start + at, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + at, mask=mask, other=0.0)
    off = tl.abs(x - target)
    loss = tl.where(off < 1.0, 0.5 * off * off, off - 0.5)
    tl.store(y_ptr + tl.program_id(0), tl.sum(weight * loss) / columns)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, x, target):
        x, target = x.contiguous(), target.contiguous()
        rows, columns = x.shape
        y = torch.empty(rows, device=x.device)
        block = triton.next_power_of_2(columns)
        huber[(rows,)](x, target, self.weight, y, columns, BLOCK=block, num_warps=16)
        return y
