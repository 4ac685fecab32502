"""A plane is a row."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/layer_norm_planes.py"

kernels = build(r"""
#include <math.h>

void layer_norm_planes(const float *x, const float *weight, const float *bias, float *y, long rows, long columns) {
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
    def __init__(self, height, width):
        super().__init__()
        self.norm = nn.LayerNorm((height, width))

    def forward(self, x):
        y = torch.empty_like(x)
        batch, height, width = x.shape
        call(kernels.layer_norm_planes, x, self.norm.weight, self.norm.bias, y, batch, height * width)
        return y
