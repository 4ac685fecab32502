"""One program a row."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/rms_norm.py"


@triton.jit
def rms_norm(x_ptr, weight_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=0) / columns + 1e-5)
    tl.store(y_ptr + row * columns + column, x * scale * weight, mask=mask)


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        rms_norm[(rows,)](x, self.weight, y, columns, BLOCK=128)
        return y
