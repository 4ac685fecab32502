"""Softmax in Triton: 32 short rows a program."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    at = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (at < columns)
    x = tl.load(x_ptr + row * columns + at, mask=mask, other=float("-inf"))
    powers = tl.exp(x - tl.max(x, axis=1)[:, None])
    tl.store(y_ptr + row * columns + at, powers / tl.sum(powers, axis=1)[:, None], mask=mask)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        rows, columns = x.shape
        softmax[(triton.cdiv(rows, 32),)](x, y, rows, columns, ROWS=32, BLOCK=triton.next_power_of_2(columns))
        return y
