"""Faulty: a kernel that never ends."""

import torch
import triton
import triton.language as tl


@triton.jit
def spin(x, y, block: tl.constexpr):
    offsets = tl.arange(0, block)
    total = tl.sum(tl.load(x + offsets), 0)
    while total == total:
        total = tl.sum(tl.load(x + offsets, volatile=True), 0)
    tl.store(y + offsets, total)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        spin[(1,)](x, y, 1024)
        return y
