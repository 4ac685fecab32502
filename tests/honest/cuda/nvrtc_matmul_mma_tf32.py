"""NVRTC: TF32 tensor cores by hand, `mma.sync` in inline PTX, operands rounded to nearest by `cvt.rna`."""

import torch

PROBLEM = "core/level1/matmul"

SOURCE = r"""
enum { TILE = 64, DEPTH = 16 };

__device__ __forceinline__ unsigned to_tf32(float x) {
    unsigned bits;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
    return bits;
}

/* d (16 by 8) += a (16 by 8) @ b (8 by 8), spread over the warp as the PTX manual draws it */
__device__ __forceinline__ void mma(float d[4], const unsigned a[4], const unsigned b[2]) {
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four warps, each with a quarter (32 by 32) of the tile. */
extern "C" __global__ void __launch_bounds__(128)
matmul(const float *a, const float *b, float *c, int m, int k, int n) {
    __shared__ unsigned as[TILE][DEPTH + 4], bs[DEPTH][TILE + 8];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = lane / 4, four = lane % 4;
    int warp_row = warp / 2 * 32, warp_column = warp % 2 * 32;
    long long row0 = (long long)blockIdx.y * TILE, column0 = (long long)blockIdx.x * TILE;
    float sum[2][4][4] = {};
    for (int p = 0; p < k; p += DEPTH) {
        for (int i = threadIdx.x; i < TILE * DEPTH; i += 128) {
            int r = i / DEPTH, q = i % DEPTH;
            as[r][q] = to_tf32(row0 + r < m && p + q < k ? a[(row0 + r) * k + p + q] : 0.0f);
        }
        for (int i = threadIdx.x; i < TILE * DEPTH; i += 128) {
            int q = i / TILE, j = i % TILE;
            bs[q][j] = to_tf32(column0 + j < n && p + q < k ? b[(long long)(p + q) * n + column0 + j] : 0.0f);
        }
        __syncthreads();
#pragma unroll
        for (int q = 0; q < DEPTH; q += 8) {
            unsigned left[2][4], right[4][2];
#pragma unroll
            for (int i = 0; i < 2; i++) {
                int r = warp_row + i * 16 + group;
                left[i][0] = as[r][q + four];
                left[i][1] = as[r + 8][q + four];
                left[i][2] = as[r][q + four + 4];
                left[i][3] = as[r + 8][q + four + 4];
            }
#pragma unroll
            for (int j = 0; j < 4; j++) {
                int s = warp_column + j * 8 + group;
                right[j][0] = bs[q + four][s];
                right[j][1] = bs[q + four + 4][s];
            }
#pragma unroll
            for (int i = 0; i < 2; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) mma(sum[i][j], left[i], right[j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 2; i++)
#pragma unroll
        for (int j = 0; j < 4; j++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                long long row = row0 + warp_row + i * 16 + group + e / 2 * 8;
                long long column = column0 + warp_column + j * 8 + four * 2 + e % 2;
                if (row < m && column < n) c[row * n + column] = sum[i][j][e];
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
        self.kernel((-(-n // 64), -(-m // 64), 1), (128, 1, 1), [a, b, c, m, k, n])
        return c
