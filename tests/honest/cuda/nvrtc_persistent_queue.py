"""NVRTC: blocks that take rows from a queue (an atomic counter that each call resets) until it is empty."""

import torch

PROBLEM = "core/level2/residual_rms_norm"
SPEEDUP_AT_LEAST = 1.4

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(256) rows_from_queue(
    const float *x, const float *residual, const float *weight, float *y, float *total, int *queue, int rows,
    int columns) {
    __shared__ int next;
    __shared__ float sums[8];
    for (;;) {
        if (threadIdx.x == 0) next = atomicAdd(queue, 1);
        __syncthreads();
        int row = next;
        __syncthreads();
        if (row >= rows) return;
        long long first = (long long)row * columns;
        float sum = 0.0f;
        for (int c = threadIdx.x; c < columns; c += 256) {
            float t = x[first + c] + residual[first + c];
            total[first + c] = t;
            sum += t * t;
        }
        for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.0f;
        for (int w = 0; w < 8; w++) sum += sums[w];
        float scale = rsqrtf(sum / columns + 1e-5f);
        for (int c = threadIdx.x; c < columns; c += 256) y[first + c] = total[first + c] * scale * weight[c];
        __syncthreads();
    }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.kernel = self.queue = None

    def forward(self, x, residual):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "rows_from_queue")
            self.queue = torch.empty(1, dtype=torch.int32, device=x.device)
        rows, columns = x.shape
        x, residual = x.contiguous(), residual.contiguous()
        y, total = torch.empty_like(x), torch.empty_like(x)
        self.queue.zero_()
        arguments = [x, residual, self.weight, y, total, self.queue, rows, columns]
        self.kernel((min(rows, 1024), 1, 1), (256, 1, 1), arguments)
        return y, total
