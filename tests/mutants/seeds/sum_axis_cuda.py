"""Rows shared among blocks, atomic additions."""

import torch
from torch import nn

from tests.mutants.preludes.cuda import Kernels

PROBLEM = "mutants/problems/sum_axis.py"

kernels = Kernels(r"""
extern "C" __global__ void sum_axis(const float *x, float *y, int rows, int columns) {
    int column = threadIdx.x, batch = blockIdx.y;
    float sum = 0.0f;
    int first = blockIdx.x * 16, last = min(first + 16, rows);
    if (column < columns) {
        for (int i = first; i < last; i++) sum += x[(batch * rows + i) * columns + column];
        atomicAdd(&y[batch * columns + column], sum);
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        batch, rows, columns = x.shape
        y = torch.zeros(batch, 1, columns, dtype=x.dtype, device=x.device)
        kernels.launch("sum_axis", ((rows + 15) // 16, batch), (32,), x, y, rows, columns)
        return y
