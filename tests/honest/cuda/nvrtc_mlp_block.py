"""NVRTC: the whole block by two kernels of its own, the product's epilogue chosen by a template argument."""

import torch

PROBLEM = "core/level3/mlp_block"

SOURCE = r"""
enum { TILE = 128, DEPTH = 8 };

__device__ float over_block(float value, float *shared) {
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
    __syncthreads();
    value = 0.0f;
    for (int w = 0; w < 8; w++) value += shared[w];
    __syncthreads();
    return value;
}

extern "C" __global__ void __launch_bounds__(256)
layer_norm(const float *x, const float *weight, const float *bias, float *y, int columns) {
    __shared__ float shared[8];
    const float *a = x + (long long)blockIdx.x * columns;
    float *b = y + (long long)blockIdx.x * columns, sum = 0.0f, squares = 0.0f;
    for (int c = threadIdx.x; c < columns; c += 256) sum += a[c];
    float mean = over_block(sum, shared) / columns;
    for (int c = threadIdx.x; c < columns; c += 256) squares += (a[c] - mean) * (a[c] - mean);
    float scale = rsqrtf(over_block(squares, shared) / columns + 1e-5f);
    for (int c = threadIdx.x; c < columns; c += 256) b[c] = (a[c] - mean) * scale * weight[c] + bias[c];
}

/* y (m by n) = x (m by k) @ weight (n by k) transposed + bias; then GELU, or a residual */
template <bool gelu>
__device__ void linear(
    const float *x, const float *weight, const float *bias, const float *residual, float *y, int m, int k, int n) {
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
                y[row * n + column] = gelu ? 0.5f * t * (1.0f + erff(0.70710678f * t)) : residual[row * n + column] + t;
            }
        }
}

extern "C" __global__ void __launch_bounds__(256)
up_gelu(const float *x, const float *weight, const float *bias, float *y, int m, int k, int n) {
    linear<true>(x, weight, bias, 0, y, m, k, n);
}

extern "C" __global__ void __launch_bounds__(256) down_residual(
    const float *x, const float *weight, const float *bias, const float *residual, float *y, int m, int k, int n) {
    linear<false>(x, weight, bias, residual, y, m, k, n);
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(width)
        self.up = torch.nn.Linear(width, hidden)
        self.down = torch.nn.Linear(hidden, width)
        torch.nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        torch.nn.init.normal_(self.norm.bias, std=0.1)
        self.kernels = None

    def forward(self, x):
        if self.kernels is None:
            names = ("layer_norm", "up_gelu", "down_residual")
            self.kernels = [torch.cuda._compile_kernel(SOURCE, name) for name in names]
        layer_norm, up_gelu, down_residual = self.kernels
        (tokens, width), hidden, block = x.shape, self.up.out_features, (256, 1, 1)
        x = x.contiguous()
        plain, inner, y = torch.empty_like(x), x.new_empty(tokens, hidden), torch.empty_like(x)
        layer_norm((tokens, 1, 1), block, [x, self.norm.weight, self.norm.bias, plain, width])
        grid = (-(-hidden // 128), -(-tokens // 128), 1)
        up_gelu(grid, block, [plain, self.up.weight, self.up.bias, inner, tokens, width, hidden])
        grid = (-(-width // 128), -(-tokens // 128), 1)
        down_residual(grid, block, [inner, self.down.weight, self.down.bias, x, y, tokens, hidden, width])
        return y
