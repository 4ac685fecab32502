"""A grid-stride loop."""

import torch
from torch import nn

from tests.mutants.preludes.cuda import Kernels

PROBLEM = "mutants/problems/leaky_relu.py"

kernels = Kernels(r"""
extern "C" __global__ void leaky_relu(const float *x, float *y, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        float t = x[i];
        y[i] = t > 0.0f ? t : 0.01f * t;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.launch("leaky_relu", (8,), (128,), x, y, x.numel())
        return y
