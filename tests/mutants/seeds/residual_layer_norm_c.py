"""The sum is kept in the output until it is normalised."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/residual_layer_norm.py"

kernels = build(r"""
#include <math.h>

void residual_layer_norm(const float *x, const float *residual, const float *weight, const float *bias, float *y,
                         long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        float *out = y + i * columns;
        float sum = 0.0f;
        for (long j = 0; j < columns; j++) {
            out[j] = x[i * columns + j] + residual[i * columns + j];
            sum += out[j];
        }
        float mean = sum / columns, squares = 0.0f;
        for (long j = 0; j < columns; j++) squares += (out[j] - mean) * (out[j] - mean);
        float scale = 1.0f / sqrtf(squares / columns + 1e-5f);
        for (long j = 0; j < columns; j++) out[j] = (out[j] - mean) * scale * weight[j] + bias[j];
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x, residual):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.residual_layer_norm, x, residual, self.norm.weight, self.norm.bias, y, rows, columns)
        return y
