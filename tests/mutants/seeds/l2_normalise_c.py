"""Sum of squares, then one factor a row."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/l2_normalise.py"

kernels = build(r"""
#include <math.h>

void l2_normalise(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * columns;
        float squares = 0.0f;
        for (long j = 0; j < columns; j++) squares += row[j] * row[j];
        float norm = sqrtf(squares);
        for (long j = 0; j < columns; j++) y[i * columns + j] = row[j] / norm;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.l2_normalise, x, y, rows, columns)
        return y
