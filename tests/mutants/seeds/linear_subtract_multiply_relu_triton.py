"""Blocks of 32 by 32 with the epilogue."""

from torch import nn

from tests.mutants.preludes.triton import tl, triton

PROBLEM = "mutants/problems/linear_subtract_multiply_relu.py"


@triton.jit
def linear(x_ptr, weight_ptr, bias_ptr, y_ptr, m, n, k, BLOCK: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for start in range(0, k, STEP):
        inner = start + tl.arange(0, STEP)
        x = tl.load(
            x_ptr + row[:, None] * k + inner[None, :], mask=(row[:, None] < m) & (inner[None, :] < k), other=0.0
        )
        w = tl.load(
            weight_ptr + column[None, :] * k + inner[:, None],
            mask=(column[None, :] < n) & (inner[:, None] < k),
            other=0.0,
        )
        total += tl.dot(x, w)
    bias = tl.load(bias_ptr + column, mask=column < n, other=0.0)
    y = tl.maximum((total + bias[None, :] - 2.0) * 1.5, 0.0)
    tl.store(y_ptr + row[:, None] * n + column[None, :], y, mask=(row[:, None] < m) & (column[None, :] < n))


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        m, k = x.shape
        weight, bias = self.linear.weight, self.linear.bias
        n = weight.shape[0]
        y = x.new_empty(m, n)
        linear[(triton.cdiv(m, 32), triton.cdiv(n, 32))](x, weight, bias, y, m, n, k, BLOCK=32, STEP=16)
        return y
