"""Honest: Triton, one block of 4096 elements a program."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu(x, y, n, block: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = offsets < n
    tl.store(y + offsets, tl.maximum(tl.load(x + offsets, mask), 0.0), mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        relu[(triton.cdiv(x.numel(), 4096),)](x, y, x.numel(), 4096)
        return y
