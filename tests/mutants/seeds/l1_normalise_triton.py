"""One program a row."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/l1_normalise.py"


@triton.jit
def l1_normalise(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    mean = tl.sum(tl.abs(x), axis=0) / columns
    tl.store(y_ptr + row * columns + column, x / mean, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        l1_normalise[(rows,)](x, y, columns, BLOCK=256)
        return y
