"""One program a row."""

from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/gather_rows.py"


@triton.jit
def gather_rows(x_ptr, index_ptr, factor_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + tl.load(index_ptr + row) * columns + column, mask=mask, other=0.0)
    tl.store(y_ptr + row * columns + column, x * tl.load(factor_ptr + row), mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, index, factor):
        y = x.new_empty(index.shape[0], x.shape[1])
        gather_rows[(index.shape[0],)](x, index, factor, y, x.shape[1], BLOCK=32)
        return y
