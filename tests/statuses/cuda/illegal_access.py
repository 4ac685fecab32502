"""ILLEGAL_ACCESS: a Triton kernel without a mask that runs far beyond its output."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level1/relu"
EXPECT = ["ILLEGAL_ACCESS"]


@triton.jit
def relu_kernel(x, y, stride, BLOCK: tl.constexpr):
    offsets = tl.program_id(0).to(tl.int64) * stride + tl.arange(0, BLOCK)
    tl.store(y + offsets, tl.maximum(tl.load(x + offsets), 0.0))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[(64,)](x, out, 1 << 36, BLOCK=1024)
        return out
