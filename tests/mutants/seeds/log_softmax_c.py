"""Maximum, sum, difference."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/log_softmax.py"

kernels = build(r"""
#include <math.h>

void log_softmax(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * columns;
        float largest = -INFINITY, sum = 0.0f;
        for (long j = 0; j < columns; j++) largest = fmaxf(largest, row[j]);
        for (long j = 0; j < columns; j++) sum += expf(row[j] - largest);
        float shift = largest + logf(sum);
        for (long j = 0; j < columns; j++) y[i * columns + j] = row[j] - shift;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.log_softmax, x, y, rows, columns)
        return y
