"""One program a row."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/softmax_rows.py"


@triton.jit
def softmax_rows(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=-float("inf"))
    top = tl.max(x, axis=0)
    weight = tl.exp(x - top)
    tl.store(y_ptr + row * columns + column, weight / tl.sum(weight, axis=0), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        softmax_rows[(rows,)](x, y, columns, BLOCK=256)
        return y
