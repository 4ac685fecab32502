"""Triton: the normalisation's scale and shift folded into packed weights, and two products with epilogues.

Folding mean and deviation as well, (x @ up - mean * sum(up)) / deviation, would cancel where the mean is large.
"""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level3/mlp_block"


@triton.jit
def plain_norm_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * columns
    column = tl.arange(0, BLOCK)
    mask = column < columns
    x = tl.load(x_ptr + first + column, mask=mask, other=0.0)
    centred = tl.where(mask, x - tl.sum(x, axis=0) / columns, 0.0)
    y = centred * tl.rsqrt(tl.sum(centred * centred, axis=0) / columns + 1e-5)
    tl.store(y_ptr + first + column, y, mask=mask)


@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, bias_ptr, residual_ptr, y_ptr, m, n, k,
    GELU: tl.constexpr, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    rows = (tl.program_id(0) * M + tl.arange(0, M)).to(tl.int64)
    columns = (tl.program_id(1) * N + tl.arange(0, N)).to(tl.int64)
    total = tl.zeros((M, N), dtype=tl.float32)
    for p in range(0, k, K):
        inner = p + tl.arange(0, K)
        x_mask = (rows[:, None] < m) & (inner[None, :] < k)
        weight_mask = (inner[:, None] < k) & (columns[None, :] < n)
        x = tl.load(x_ptr + rows[:, None] * k + inner[None, :], mask=x_mask, other=0.0)
        weight = tl.load(weight_ptr + inner[:, None].to(tl.int64) * n + columns[None, :], mask=weight_mask, other=0.0)
        total = tl.dot(x, weight, total, input_precision="tf32")
    y = total + tl.load(bias_ptr + columns, mask=columns < n, other=0.0)[None, :]
    mask = (rows[:, None] < m) & (columns[None, :] < n)
    offsets = rows[:, None] * n + columns[None, :]
    if GELU:
        y = 0.5 * y * (1.0 + tl.erf(y * 0.7071067811865476))
    else:
        y += tl.load(residual_ptr + offsets, mask=mask, other=0.0)
    tl.store(y_ptr + offsets, y, mask=mask)


def linear(x, weight, bias, residual=None):
    """x @ weight + bias, then GELU, or the residual added where there is one."""
    (m, k), n = x.shape, weight.shape[1]
    y = x.new_empty(m, n)
    grid = (triton.cdiv(m, 128), triton.cdiv(n, 128))
    linear_kernel[grid](
        x, weight, bias, bias if residual is None else residual, y, m, n, k,
        GELU=residual is None, M=128, N=128, K=32, num_warps=8, num_stages=3,
    )  # fmt: skip
    return y


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, hidden)
        self.down = torch.nn.Linear(hidden, width)
        torch.nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        torch.nn.init.normal_(self.norm.bias, std=0.1)
        self.packed = None

    def pack(self):
        up = self.up.weight.double()
        bias = self.up.bias.double() + up @ self.norm.bias.double()
        folded = (up * self.norm.weight.double()).t()
        return folded.float().contiguous(), bias.float(), self.down.weight.t().contiguous(), self.down.bias

    def forward(self, x):
        if self.packed is None:
            self.packed = self.pack()
        up, up_bias, down, down_bias = self.packed
        x = x.contiguous()
        plain = torch.empty_like(x)
        tokens, width = x.shape
        plain_norm_kernel[(tokens,)](x, plain, width, BLOCK=triton.next_power_of_2(width), num_warps=8)
        return linear(linear(plain, up, up_bias), down, down_bias, x)
