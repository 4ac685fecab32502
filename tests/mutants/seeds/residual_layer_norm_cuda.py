"""One block a row; the sum stays in shared memory."""

import torch
from torch import nn

from tests.mutants.preludes.cuda import Kernels

PROBLEM = "mutants/problems/residual_layer_norm.py"

kernels = Kernels(r"""
extern "C" __global__ void residual_layer_norm(const float *x, const float *residual, const float *weight,
                                               const float *bias, float *y, int columns) {
    __shared__ float row[128], part[64];
    int t = threadIdx.x;
    float sum = 0.0f, squares = 0.0f;
    for (int j = t; j < columns; j += 64) {
        row[j] = x[blockIdx.x * columns + j] + residual[blockIdx.x * columns + j];
        sum += row[j];
    }
    part[t] = sum;
    __syncthreads();
    for (int step = 32; step > 0; step >>= 1) {
        if (t < step) part[t] += part[t + step];
        __syncthreads();
    }
    float mean = part[0] / columns;
    __syncthreads();
    for (int j = t; j < columns; j += 64) squares += (row[j] - mean) * (row[j] - mean);
    part[t] = squares;
    __syncthreads();
    for (int step = 32; step > 0; step >>= 1) {
        if (t < step) part[t] += part[t + step];
        __syncthreads();
    }
    float scale = rsqrtf(part[0] / columns + 1e-5f);
    for (int j = t; j < columns; j += 64)
        y[blockIdx.x * columns + j] = (row[j] - mean) * scale * weight[j] + bias[j];
}
""")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x, residual):
        rows, columns = x.shape
        y = torch.empty_like(x)
        norm = self.norm
        kernels.launch("residual_layer_norm", (rows,), (64,), x, residual, norm.weight, norm.bias, y, columns)
        return y
