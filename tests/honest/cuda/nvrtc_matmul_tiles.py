"""NVRTC: an exact float32 product in tiles of 128 by 128, each thread with 64 sums in registers."""

import torch

PROBLEM = "core/level1/matmul"

SOURCE = r"""
enum { TILE = 128, DEPTH = 8 };

extern "C" __global__ void __launch_bounds__(256)
matmul(const float *a, const float *b, float *c, int m, int k, int n) {
    __shared__ float as[DEPTH][TILE + 4], bs[DEPTH][TILE];
    int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    long long row0 = (long long)blockIdx.y * TILE, column0 = (long long)blockIdx.x * TILE;
    float sum[8][8] = {};
    for (int p = 0; p < k; p += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
            int r = i / DEPTH, q = i % DEPTH;
            as[q][r] = row0 + r < m && p + q < k ? a[(row0 + r) * k + p + q] : 0.0f;
        }
        for (int i = threadIdx.x; i < TILE * DEPTH; i += 256) {
            int q = i / TILE, j = i % TILE;
            bs[q][j] = column0 + j < n && p + q < k ? b[(long long)(p + q) * n + column0 + j] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < DEPTH; q++) {
            float left[8], right[8];
#pragma unroll
            for (int i = 0; i < 8; i++) left[i] = as[q][ty * 8 + i], right[i] = bs[q][tx + 16 * i];
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) sum[i][j] += left[i] * right[j];
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 8; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
            long long row = row0 + ty * 8 + i, column = column0 + tx + 16 * j;
            if (row < m && column < n) c[row * n + column] = sum[i][j];
        }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, a, b):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "matmul")
        (m, k), n = a.shape, b.shape[1]
        a, b, c = a.contiguous(), b.contiguous(), a.new_empty(m, n)
        self.kernel((-(-n // 128), -(-m // 128), 1), (256, 1, 1), [a, b, c, m, k, n])
        return c
