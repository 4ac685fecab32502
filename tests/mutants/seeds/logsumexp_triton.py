"""One program a row, 64 columns at a time, merged."""

from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/logsumexp.py"


@triton.jit
def logsumexp(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    top = -float("inf")
    total = 0.0
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=-float("inf"))
        new = tl.maximum(top, tl.max(x, axis=0))
        total = total * tl.exp(top - new) + tl.sum(tl.exp(x - new), axis=0)
        top = new
    tl.store(y_ptr + row, top + tl.log(total))


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = x.new_empty(rows)
        logsumexp[(rows,)](x, y, columns, BLOCK=64)
        return y
