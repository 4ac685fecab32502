"""Writes before it adds."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/exclusive_cumsum.py"

kernels = build(r"""
void exclusive_cumsum(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        float sum = 0.0f;
        for (long j = 0; j < columns; j++) {
            y[i * columns + j] = sum;
            sum += x[i * columns + j];
        }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.exclusive_cumsum, x, y, rows, columns)
        return y
