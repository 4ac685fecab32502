"""A product in Triton, and GELU and scale in a second kernel over its result."""

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
        sums = tl.dot(tl.load(x), tl.load(w), sums, input_precision="tf32")
        x += K
        w += K
    y = sums + tl.load(bias_ptr + columns)[None, :]
    tl.store(y_ptr + rows[:, None].to(tl.int64) * n + columns[None, :], y)


@triton.jit
def gelu_scale(x_ptr, scale_ptr, n, columns, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mask = at < n
    x = tl.load(x_ptr + at, mask=mask)
    scale = tl.load(scale_ptr + at % columns, mask=mask)
    tl.store(x_ptr + at, 0.5 * x * (1.0 + tl.erf(0.7071067811865476 * x)) * scale, mask=mask)


class ModelNew(torch.nn.Module):
    """For sizes that are multiples of 128."""

    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)
        self.scale = torch.nn.Parameter(0.5 + torch.rand(features_out))

    def forward(self, x):
        (m, k), n = x.shape, self.scale.shape[0]
        y = torch.empty(m, n, device=x.device)
        weights = (self.linear.weight, self.linear.bias)
        linear[(m // 64 * (n // 128),)](x, *weights, y, m, n, k, M=64, N=128, K=32, num_warps=4, num_stages=3)
        gelu_scale[(triton.cdiv(y.numel(), 2048),)](y, self.scale, y.numel(), n, BLOCK=2048, num_warps=8)
        return y
