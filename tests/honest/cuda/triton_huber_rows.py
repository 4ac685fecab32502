"""Triton: a loss of two matrices and weights by column in one pass, a branch by selection, a sum for each row."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level1/huber_rows"


@triton.jit
def huber_kernel(x_ptr, target_ptr, weight_ptr, loss_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for begin in range(0, columns, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
        size = tl.abs(x - tl.load(target_ptr + row * columns + column, mask=mask, other=0.0))
        loss = tl.where(size < 1.0, 0.5 * size * size, size - 0.5)
        total += loss * tl.load(weight_ptr + column, mask=mask, other=0.0)
    tl.store(loss_ptr + row, tl.sum(total, axis=0) / columns)


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(0.5 + torch.rand(columns))

    def forward(self, x, target):
        rows, columns = x.shape
        loss = x.new_empty(rows)
        huber_kernel[(rows,)](x.contiguous(), target.contiguous(), self.weight, loss, columns, BLOCK=2048, num_warps=8)
        return loss
