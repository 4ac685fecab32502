"""One program a row, with a carry."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/cumsum.py"


@triton.jit
def cumsum(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    carry = 0.0
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        mask = column < columns
        x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
        tl.store(y_ptr + row * columns + column, carry + tl.cumsum(x, axis=0), mask=mask)
        carry += tl.sum(x, axis=0)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        cumsum[(rows,)](x, y, columns, BLOCK=64)
        return y
