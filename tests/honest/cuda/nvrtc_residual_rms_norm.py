"""NVRTC: both results in one pass, reads through the read-only cache, sums through shuffles and shared memory."""

import torch

PROBLEM = "core/level2/residual_rms_norm"
SPEEDUP_AT_LEAST = 1.6

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(512) residual_rms_norm(
    const float *x, const float *residual, const float *weight, float *y, float *total, int rows, int columns) {
    __shared__ float sums[16];
    long long first = (long long)blockIdx.x * columns;
    float sum = 0.0f;
    for (int c = threadIdx.x; c < columns; c += blockDim.x) {
        float t = __ldg(x + first + c) + __ldg(residual + first + c);
        total[first + c] = t;
        sum = fmaf(t, t, sum);
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = sums[threadIdx.x % 16];
    for (int step = 8; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    float scale = rsqrtf(sum / columns + 1e-5f);
    for (int c = threadIdx.x; c < columns; c += blockDim.x) /* each thread reads back what it wrote itself */
        y[first + c] = total[first + c] * scale * weight[c];
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.kernel = None

    def forward(self, x, residual):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "residual_rms_norm")
        rows, columns = x.shape
        x, residual = x.contiguous(), residual.contiguous()
        y, total = torch.empty_like(x), torch.empty_like(x)
        self.kernel((rows, 1, 1), (512, 1, 1), [x, residual, self.weight, y, total, rows, columns])
        return y, total
