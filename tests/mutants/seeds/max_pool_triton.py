"""One program a plane of output rows."""

from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/max_pool.py"


@triton.jit
def max_pool(x_ptr, y_ptr, height, width, rows, columns, BLOCK: tl.constexpr):
    plane = tl.program_id(0)
    i = tl.program_id(1)
    j = tl.arange(0, BLOCK)
    best = tl.full((BLOCK,), -float("inf"), dtype=tl.float32)
    for u in range(3):
        for v in range(3):
            r = i * 2 - 1 + u + 0 * j
            c = j * 2 - 1 + v
            mask = (r >= 0) & (r < height) & (c >= 0) & (c < width)
            best = tl.maximum(best, tl.load(x_ptr + (plane * height + r) * width + c, mask=mask, other=-float("inf")))
    tl.store(y_ptr + (plane * rows + i) * columns + j, best, mask=j < columns)


class ModelNew(nn.Module):
    def forward(self, x):
        batch, channels, height, width = x.shape
        rows, columns = (height + 1) // 2, (width + 1) // 2
        y = x.new_empty(batch, channels, rows, columns)
        max_pool[(batch * channels, rows)](x, y, height, width, rows, columns, BLOCK=16)
        return y
