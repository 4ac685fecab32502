"""The library's linear layer; Swish and the row's maximum in one Triton kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def swish_max(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    tops = tl.full((BLOCK,), float("-inf"), tl.float32)
    for first in range(0, columns, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
        tops = tl.maximum(tops, tl.where(at < columns, x * tl.sigmoid(x), float("-inf")))
    tl.store(y_ptr + row, tl.max(tops, axis=0))


class ModelNew(torch.nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)

    def forward(self, x):
        x = self.linear(x)
        y = torch.empty(x.shape[0], device=x.device)
        swish_max[(x.shape[0],)](x, y, x.shape[1], BLOCK=4096, num_warps=8)
        return y
