"""Maximum, sum of exponentials, division."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level1/softmax"

kernels = build(r"""
#include <math.h>

void softmax(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * columns;
        float *out = y + i * columns;
        float largest = -INFINITY, sum = 0.0f;
        for (long j = 0; j < columns; j++) largest = fmaxf(largest, row[j]);
        for (long j = 0; j < columns; j++) {
            out[j] = expf(row[j] - largest);
            sum += out[j];
        }
        for (long j = 0; j < columns; j++) out[j] /= sum;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.softmax, x, y, rows, columns)
        return y
