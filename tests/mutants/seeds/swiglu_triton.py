"""One program a row."""

from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/swiglu.py"


@triton.jit
def swiglu(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    a = tl.load(x_ptr + row * 2 * columns + column, mask=mask, other=0.0)
    b = tl.load(x_ptr + row * 2 * columns + columns + column, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + column, a * tl.sigmoid(a) * b, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape[0], x.shape[1] // 2
        y = x.new_empty(rows, columns)
        swiglu[(rows,)](x, y, columns, BLOCK=64)
        return y
