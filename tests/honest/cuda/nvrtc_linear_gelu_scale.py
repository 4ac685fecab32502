"""NVRTC: a float32 product over rows of both operands, with bias, the exact GELU and scale before it is stored."""

import torch

PROBLEM = "core/level2/linear_gelu_scale"

SOURCE = r"""
enum { TILE = 128, DEPTH = 8 };

/* y (m by n) = gelu(x (m by k) @ weight (n by k) transposed + bias) * scale */
extern "C" __global__ void __launch_bounds__(256) linear_gelu_scale(
    const float *x, const float *weight, const float *bias, const float *scale, float *y, int m, int k, int n) {
    __shared__ float xs[DEPTH][TILE + 4], ws[DEPTH][TILE + 4];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    long long row0 = (long long)blockIdx.y * TILE, column0 = (long long)blockIdx.x * TILE;
    float sum[8][8] = {};
    for (int p = 0; p < k; p += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
            int r = i / DEPTH, q = i % DEPTH;
            xs[q][r] = row0 + r < m && p + q < k ? x[(row0 + r) * k + p + q] : 0.0f;
            ws[q][r] = column0 + r < n && p + q < k ? weight[(column0 + r) * k + p + q] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < DEPTH; q++)
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sum[i][j] += xs[q][ty * 8 + i] * ws[q][tx + 16 * j];
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            long long row = row0 + ty * 8 + i, column = column0 + tx + 16 * j;
            if (row < m && column < n) {
                float t = sum[i][j] + bias[column];
                y[row * n + column] = 0.5f * t * erfcf(-0.70710678f * t) * scale[column];
            }
        }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)
        self.scale = torch.nn.Parameter(0.5 + torch.rand(features_out))
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "linear_gelu_scale")
        m, (n, k) = x.shape[0], self.linear.weight.shape
        x, y = x.contiguous(), x.new_empty(m, n)
        arguments = [x, self.linear.weight, self.linear.bias, self.scale, y, m, k, n]
        self.kernel((-(-n // 128), -(-m // 128), 1), (256, 1, 1), arguments)
        return y
