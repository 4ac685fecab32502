"""Adds where the mask is set."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/masked_cumsum.py"

kernels = build(r"""
void masked_cumsum(const float *x, const unsigned char *mask, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        float sum = 0.0f;
        for (long j = 0; j < columns; j++) {
            if (mask[i * columns + j]) sum += x[i * columns + j];
            y[i * columns + j] = sum;
        }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x, mask):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.masked_cumsum, x, mask, y, rows, columns)
        return y
