"""NVRTC: the product stays in registers; each row's extremes meet through atomics on ordered integers."""

import torch

PROBLEM = "core/level2/matmul_bias_swish_row_max"

SOURCE = r"""
enum { TILE = 128, DEPTH = 8 };

/* Unsigned integers in the order of the floats they stand for. */
__device__ __forceinline__ unsigned encode(float value) {
    unsigned bits = __float_as_uint(value);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float decode(unsigned code) {
    return __uint_as_float(code & 0x80000000u ? code & 0x7fffffffu : ~code);
}

extern "C" __global__ void clear(unsigned *low, unsigned *high, int m) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m) low[row] = 0xffffffffu, high[row] = 0u;
}

extern "C" __global__ void __launch_bounds__(256) extremes(
    const float *x, const float *weight, const float *bias, unsigned *low, unsigned *high, int m, int k, int n) {
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
    const float infinity = __int_as_float(0x7f800000);
#pragma unroll
    for (int i = 0; i < 8; i++) {
        float least = infinity, most = -infinity;
#pragma unroll
        for (int j = 0; j < 8; j++) {
            long long column = column0 + tx + 16 * j;
            if (column < n) {
                float t = sum[i][j] + bias[column];
                least = fminf(least, t);
                most = fmaxf(most, t);
            }
        }
        for (int step = 8; step > 0; step /= 2) { /* sixteen neighbours share a row */
            least = fminf(least, __shfl_xor_sync(0xffffffffu, least, step));
            most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
        }
        long long row = row0 + ty * 8 + i;
        if (tx == 0 && row < m) {
            atomicMin(&low[row], encode(least));
            atomicMax(&high[row], encode(most));
        }
    }
}

extern "C" __global__ void finish(const unsigned *low, const unsigned *high, float *y, int m) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m) return;
    float least = decode(low[row]), most = decode(high[row]);
    y[row] = fmaxf(least / (1.0f + expf(-least)), most / (1.0f + expf(-most)));
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = torch.nn.Linear(features_in, features_out)
        self.kernels = None

    def forward(self, x):
        if self.kernels is None:
            self.kernels = [torch.cuda._compile_kernel(SOURCE, name) for name in ("clear", "extremes", "finish")]
        clear, extremes, finish = self.kernels
        m, (n, k) = x.shape[0], self.linear.weight.shape
        x, y = x.contiguous(), x.new_empty(m)
        low, high = torch.empty(2, m, dtype=torch.int32, device=x.device)
        rows = (-(-m // 256), 1, 1)
        clear(rows, (256, 1, 1), [low, high, m])
        arguments = [x, self.linear.weight, self.linear.bias, low, high, m, k, n]
        extremes((-(-n // 128), -(-m // 128), 1), (256, 1, 1), arguments)
        finish(rows, (256, 1, 1), [low, high, y, m])
        return y
