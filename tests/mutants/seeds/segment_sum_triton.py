"""One program a row, atomic additions."""

import torch
from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/segment_sum.py"


@triton.jit
def segment_sum(x_ptr, segment_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=0.0)
    tl.atomic_add(y_ptr + tl.load(segment_ptr + row) * columns + column, x, mask=mask)


class ModelNew(nn.Module):
    def forward(self, x, segment):
        y = torch.zeros(12, x.shape[1], dtype=x.dtype, device=x.device)
        segment_sum[(x.shape[0],)](x, segment, y, x.shape[1], BLOCK=32)
        return y
