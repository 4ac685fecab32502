"""Softmax in Triton: one short row a program."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    start = tl.program_id(0).to(tl.int64) * columns
    x = tl.load(x_ptr + start + at, mask=at < columns, other=float("-inf"))
    powers = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + start + at, powers / tl.sum(powers, axis=0), mask=at < columns)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        softmax[(rows,)](x, y, columns, BLOCK=triton.next_power_of_2(columns))
        return y
