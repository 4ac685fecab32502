"""A product in Triton whose sums go through GELU and scale before they are stored."""

import torch
import triton
import triton.language as tl


@triton.jit
def linear(x_ptr, w_ptr, bias_ptr, scale_ptr, y_ptr, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
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
    y = 0.5 * y * (1.0 + tl.erf(0.7071067811865476 * y)) * tl.load(scale_ptr + columns)[None, :]
    tl.store(y_ptr + rows[:, None].to(tl.int64) * n + columns[None, :], y)


class ModelNew(torch.nn.Module):
    """For sizes that are multiples of 128."""

    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)
        self.scale = torch.nn.Parameter(0.5 + torch.rand(features_out))

    def forward(self, x):
        (m, k), n = x.shape, self.scale.shape[0]
        y = torch.empty(m, n, device=x.device)
        weights = (self.linear.weight, self.linear.bias, self.scale)
        linear[(m // 64 * (n // 128),)](x, *weights, y, m, n, k, M=64, N=128, K=32, num_warps=4, num_stages=3)
        return y
