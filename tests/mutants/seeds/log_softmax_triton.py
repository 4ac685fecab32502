"""One program a row."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/log_softmax.py"


@triton.jit
def log_softmax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=-float("inf"))
    shifted = x - tl.max(x, axis=0)
    total = tl.sum(tl.exp(shifted), axis=0)
    tl.store(y_ptr + row * columns + column, shifted - tl.log(total), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        log_softmax[(rows,)](x, y, columns, BLOCK=256)
        return y
