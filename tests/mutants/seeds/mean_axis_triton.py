"""One program a batch, 16 rows at a time."""

from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/mean_axis.py"


@triton.jit
def mean_axis(x_ptr, y_ptr, rows, columns, BLOCK: tl.constexpr, STEP: tl.constexpr):
    batch = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, rows, STEP):
        row = start + tl.arange(0, STEP)
        mask = (row[:, None] < rows) & (column[None, :] < columns)
        x = tl.load(x_ptr + (batch * rows + row[:, None]) * columns + column[None, :], mask=mask, other=0.0)
        total += tl.sum(x, axis=0)
    tl.store(y_ptr + batch * columns + column, total / rows, mask=column < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        batch, rows, columns = x.shape
        y = x.new_empty(batch, columns)
        mean_axis[(batch,)](x, y, rows, columns, BLOCK=32, STEP=16)
        return y
