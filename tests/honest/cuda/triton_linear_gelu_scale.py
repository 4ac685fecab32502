"""Triton: autotuned TF32 product with bias, GELU and scale in its epilogue; tiles in groups for the L2 cache."""

import torch
import triton
import triton.language as tl

PROBLEM = "core/level2/linear_gelu_scale"

CONFIGS = [
    triton.Config({"M": m, "N": n, "K": 32}, num_warps=warps, num_stages=stages)
    for m, n, warps, stages in ((128, 128, 8, 3), (128, 64, 4, 4), (64, 128, 4, 4))
]


@triton.autotune(configs=CONFIGS, key=["m", "n", "k"])
@triton.jit
def linear_kernel(
    x_ptr, weight_ptr, bias_ptr, scale_ptr, y_ptr, m, n, k,
    M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(0)
    tiles_m, tiles_n = tl.cdiv(m, M), tl.cdiv(n, N)
    group = pid // (GROUP * tiles_n)
    tall = min(tiles_m - group * GROUP, GROUP)
    row_tile = group * GROUP + pid % (GROUP * tiles_n) % tall
    column_tile = pid % (GROUP * tiles_n) // tall
    rows = (row_tile * M + tl.arange(0, M)).to(tl.int64)
    columns = (column_tile * N + tl.arange(0, N)).to(tl.int64)
    total = tl.zeros((M, N), dtype=tl.float32)
    for p in range(0, k, K):
        inner = p + tl.arange(0, K)
        x_mask = (rows[:, None] < m) & (inner[None, :] < k)
        weight_mask = (inner[:, None] < k) & (columns[None, :] < n)
        x = tl.load(x_ptr + rows[:, None] * k + inner[None, :], mask=x_mask, other=0.0)
        weight = tl.load(weight_ptr + columns[None, :] * k + inner[:, None], mask=weight_mask, other=0.0)
        total = tl.dot(x, weight, total, input_precision="tf32")
    t = total + tl.load(bias_ptr + columns, mask=columns < n, other=0.0)[None, :]
    scale = tl.load(scale_ptr + columns, mask=columns < n, other=0.0)[None, :]
    y = 0.5 * t * (1.0 + tl.erf(t * 0.7071067811865476)) * scale
    tl.store(y_ptr + rows[:, None] * n + columns[None, :], y, mask=(rows[:, None] < m) & (columns[None, :] < n))


class ModelNew(torch.nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)
        self.scale = torch.nn.Parameter(0.5 + torch.rand(features_out))

    def forward(self, x):
        m, (n, k) = x.shape[0], self.linear.weight.shape
        x, y = x.contiguous(), x.new_empty(m, n)
        linear_kernel[lambda meta: (triton.cdiv(m, meta["M"]) * triton.cdiv(n, meta["N"]),)](
            x, self.linear.weight, self.linear.bias, self.scale, y, m, n, k, GROUP=8
        )
        return y
