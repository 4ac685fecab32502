"""The library's linear layer; GELU and scale in one Triton kernel, in place."""

import torch
import triton
import triton.language as tl


@triton.jit
def gelu_scale(x_ptr, scale_ptr, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    scale = tl.load(scale_ptr + at % columns, mask=mask)
    tl.store(x_ptr + at, 0.5 * x * (1.0 + tl.erf(0.7071067811865476 * x)) * scale, mask=mask)


class ModelNew(torch.nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)
        self.scale = torch.nn.Parameter(0.5 + torch.rand(features_out))

    def forward(self, x):
        y = self.linear(x)
        gelu_scale[(triton.cdiv(y.numel(), 2048),)](y, self.scale, y.numel(), y.shape[1], BLOCK=2048, num_warps=8)
        return y
