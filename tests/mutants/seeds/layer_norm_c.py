"""Mean, variance, output."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level1/layer_norm"

kernels = build(r"""
#include <math.h>

void layer_norm(const float *x, const float *weight, const float *bias, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * columns;
        float sum = 0.0f;
        for (long j = 0; j < columns; j++) sum += row[j];
        float mean = sum / columns;
        float squares = 0.0f;
        for (long j = 0; j < columns; j++) {
            float centred = row[j] - mean;
            squares += centred * centred;
        }
        float scale = 1.0f / sqrtf(squares / columns + 1e-5f);
        for (long j = 0; j < columns; j++) y[i * columns + j] = (row[j] - mean) * scale * weight[j] + bias[j];
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        # Drawn rather than ones and zeros: skipping the scale or the shift must show.
        self.weight = nn.Parameter(torch.randn(columns))
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.layer_norm, x, self.weight, self.bias, y, rows, columns)
        return y
