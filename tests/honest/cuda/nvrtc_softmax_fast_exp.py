"""NVRTC: a warp for each row, which stays in registers, and the hardware's fast exponential."""

import torch

PROBLEM = "core/level1/softmax"

SOURCE = r"""
enum { VALUES = @VALUES@ }; /* of a row in each lane: 32 * VALUES >= columns */

extern "C" __global__ void __launch_bounds__(256) softmax(const float *x, float *y, int rows, int columns) {
    long long row = (long long)blockIdx.x * 8 + threadIdx.x / 32;
    if (row >= rows) return;
    int lane = threadIdx.x % 32;
    const float least = -__int_as_float(0x7f800000);
    float value[VALUES], top = least, sum = 0.0f;
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int c = lane + 32 * i;
        value[i] = c < columns ? x[row * columns + c] : least;
        top = fmaxf(top, value[i]);
    }
    for (int step = 16; step > 0; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, step));
#pragma unroll
    for (int i = 0; i < VALUES; i++) sum += value[i] = __expf(value[i] - top);
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
    float share = __frcp_rn(sum);
#pragma unroll
    for (int i = 0; i < VALUES; i++) {
        int c = lane + 32 * i;
        if (c < columns) y[row * columns + c] = value[i] * share;
    }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernels = {}

    def forward(self, x):
        rows, columns = x.shape
        if columns not in self.kernels:
            source = SOURCE.replace("@VALUES@", str(-(-columns // 32)))
            self.kernels[columns] = torch.cuda._compile_kernel(source, "softmax")
        x = x.contiguous()
        y = torch.empty_like(x)
        self.kernels[columns]((-(-rows // 8), 1, 1), (256, 1, 1), [x, y, rows, columns])
        return y
