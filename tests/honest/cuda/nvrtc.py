"""A kernel compiled at run time by NVRTC and launched through the driver API."""

import torch

PROBLEM = "core/level1/relu"

SOURCE = r"""
extern "C" __global__ void relu_kernel(const float *x, float *y, int n) {
    unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = None

    def forward(self, x):
        if self.kernel is None:
            self.kernel = torch.cuda._compile_kernel(SOURCE, "relu_kernel")
        out = torch.empty_like(x)
        n = x.numel()
        self.kernel(((n + 255) // 256, 1, 1), (256, 1, 1), [x, out, n])
        return out
