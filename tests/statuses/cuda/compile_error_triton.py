"""COMPILE_ERROR: Triton code that its compiler refuses."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level1/relu"
EXPECT = ["COMPILE_ERROR"]


@triton.jit
def relu_kernel(x, y, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK) + tl.arange(0, 2 * BLOCK)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n))


class ModelNew(torch.nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        relu_kernel[(1,)](x, out, x.numel(), BLOCK=1024)
        return out
