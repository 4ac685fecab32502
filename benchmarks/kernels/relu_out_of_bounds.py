"""Faulty: writes far outside its output."""

import torch
import triton
import triton.language as tl


@triton.jit
def scatter(y, block: tl.constexpr):
    offsets = (tl.program_id(0).to(tl.int64) + 1) * (1 << 40) + tl.arange(0, block)
    tl.store(y + offsets, 1.0)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        scatter[(64,)](y, 1024)
        return y
