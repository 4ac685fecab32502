"""A product of our own in exact fp32, then Swish and the row's maximum in one kernel."""

import torch
import triton
import triton.language as tl


@triton.jit
def linear(x_ptr, w_ptr, bias_ptr, y_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    # Eight rows of tiles share the columns that they read while those are in the cache.
    of_group = 8 * (n // N)
    first = tl.program_id(0) // of_group * 8
    height = min(m // M - first, 8)
    row = first + tl.program_id(0) % of_group % height
    column = tl.program_id(0) % of_group // height
    rows, columns, inner = row * M + tl.arange(0, M), column * N + tl.arange(0, N), tl.arange(0, K)
    x = x_ptr + rows[:, None].to(tl.int64) * k + inner[None, :]
    w = w_ptr + columns[None, :].to(tl.int64) * k + inner[:, None]
    sums = tl.zeros((M, N), tl.float32)
    for _ in range(0, k, K):
        sums = tl.dot(tl.load(x), tl.load(w), sums, input_precision="ieee")
        x += K
        w += K
    y = sums + tl.load(bias_ptr + columns)[None, :]
    tl.store(y_ptr + rows[:, None].to(tl.int64) * n + columns[None, :], y)


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
    """For sizes that are multiples of 128."""

    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)

    def forward(self, x):
        (m, k), n = x.shape, self.linear.bias.shape[0]
        hidden, y = torch.empty(m, n, device=x.device), torch.empty(m, device=x.device)
        weights = (self.linear.weight, self.linear.bias)
        linear[(m // 128 * (n // 128),)](x, *weights, hidden, m, n, k, M=128, N=128, K=32, num_warps=8, num_stages=2)
        swish_max[(m,)](hidden, y, n, BLOCK=4096, num_warps=8)
        return y
