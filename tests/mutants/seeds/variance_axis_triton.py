"""One program a row."""

from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/variance_axis.py"


@triton.jit
def variance_axis(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    mean = tl.sum(x, axis=0) / columns
    centred = tl.where(mask, x - mean, 0.0)
    tl.store(y_ptr + row, tl.sum(centred * centred, axis=0) / (columns - 1))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = x.new_empty(rows)
        variance_axis[(rows,)](x, y, columns, BLOCK=64)
        return y
