"""Sum of absolute values in two accumulators."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/l1_normalise.py"

kernels = build(r"""
#include <math.h>

void l1_normalise(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * columns;
        float even = 0.0f, odd = 0.0f;
        long j = 0;
        for (; j + 1 < columns; j += 2) {
            even += fabsf(row[j]);
            odd += fabsf(row[j + 1]);
        }
        if (j < columns) even += fabsf(row[j]);
        float mean = (even + odd) / columns;
        for (j = 0; j < columns; j++) y[i * columns + j] = row[j] / mean;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.l1_normalise, x, y, rows, columns)
        return y
