"""Online: maximum and sum in one pass."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/softmax_rows.py"

kernels = build(r"""
#include <math.h>

void softmax_rows(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * columns;
        float largest = -INFINITY, sum = 0.0f;
        for (long j = 0; j < columns; j++) {
            float value = row[j];
            if (value > largest) {
                sum = sum * expf(largest - value) + 1.0f;
                largest = value;
            } else {
                sum += expf(value - largest);
            }
        }
        for (long j = 0; j < columns; j++) y[i * columns + j] = expf(row[j] - largest) / sum;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.softmax_rows, x, y, rows, columns)
        return y
