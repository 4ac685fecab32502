"""NVRTC: a recurrence in registers, a thread for each channel; what all channels share goes through shared memory."""

import torch

PROBLEM = "core/level4/selective_scan"

SOURCE = r"""
extern "C" __global__ void __launch_bounds__(128)
scan(const float *x, const float *d, const float *b, const float *c, const float *rate, const float *skip, float *y,
     int steps, int width, int size) {
    __shared__ float shared_b[32], shared_c[32];
    int channel = blockIdx.x * 128 + threadIdx.x;
    bool inside = channel < width;
    float rates[32], h[32];
    for (int s = 0; s < 32; s++) {
        h[s] = 0.0f;
        rates[s] = inside && s < size ? rate[(long long)channel * size + s] : 0.0f;
    }
    for (int t = 0; t < steps; t++) {
        long long line = (long long)blockIdx.y * steps + t;
        __syncthreads();
        if (threadIdx.x < 32) {
            shared_b[threadIdx.x] = threadIdx.x < size ? b[line * size + threadIdx.x] : 0.0f;
            shared_c[threadIdx.x] = threadIdx.x < size ? c[line * size + threadIdx.x] : 0.0f;
        }
        __syncthreads();
        if (inside) {
            float given = d[line * width + channel], value = x[line * width + channel];
            float step = given > 20.0f ? given : log1pf(expf(given)), sum = 0.0f;
#pragma unroll
            for (int s = 0; s < 32; s++) {
                h[s] = expf(-step * rates[s]) * h[s] + step * value * shared_b[s];
                sum += h[s] * shared_c[s];
            }
            y[line * width + channel] = sum + skip[channel] * value;
        }
    }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self, width, state):
        super().__init__()
        self.rate = torch.nn.Parameter(0.2 + 1.5 * torch.rand(width, state))
        self.skip = torch.nn.Parameter(0.5 + torch.rand(width))
        self.kernel = None

    def forward(self, x, d, b, c):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "scan")
        batch, steps, width = x.shape
        x, d, b, c = x.contiguous(), d.contiguous(), b.contiguous(), c.contiguous()
        y = torch.empty_like(x)
        arguments = [x, d, b, c, self.rate, self.skip, y, steps, width, b.shape[2]]
        self.kernel((-(-width // 128), batch, 1), (128, 1, 1), arguments)
        return y
