"""Blocks of 32 with a carry."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/cumsum.py"

kernels = build(r"""
void cumsum(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        float carry = 0.0f;
        for (long start = 0; start < columns; start += 32) {
            long end = start + 32 < columns ? start + 32 : columns;
            float sum = 0.0f;
            for (long j = start; j < end; j++) {
                sum += x[i * columns + j];
                y[i * columns + j] = carry + sum;
            }
            carry += sum;
        }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.cumsum, x, y, rows, columns)
        return y
