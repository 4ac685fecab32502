"""Four partial sums of squares."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/rms_norm.py"

kernels = build(r"""
#include <math.h>

void rms_norm(const float *x, const float *weight, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * columns;
        float partial[4] = {0.0f, 0.0f, 0.0f, 0.0f};
        for (long j = 0; j < columns; j++) partial[j % 4] += row[j] * row[j];
        float mean = (partial[0] + partial[1] + partial[2] + partial[3]) / columns;
        float scale = 1.0f / sqrtf(mean + 1e-5f);
        for (long j = 0; j < columns; j++) y[i * columns + j] = row[j] * scale * weight[j];
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.rms_norm, x, self.weight, y, rows, columns)
        return y
