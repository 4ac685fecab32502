"""Layer normalisation and GELU in C."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level3/mlp_block"

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

void gelu(const float *x, float *y, long n) {
    for (long i = 0; i < n; i++) y[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678f));
}

void add(const float *a, const float *b, float *y, long n) {
    for (long i = 0; i < n; i++) y[i] = a[i] + b[i];
}
""")


class ModelNew(nn.Module):
    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, hidden)
        self.down = nn.Linear(hidden, width)
        # A fresh LayerNorm scales by one and shifts by zero, which nobody would miss.
        nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        nn.init.normal_(self.norm.bias, std=0.1)

    def forward(self, x):
        normal = torch.empty_like(x)
        call(kernels.layer_norm, x, self.norm.weight, self.norm.bias, normal, *x.shape)
        up = self.up(normal)
        hidden = torch.empty_like(up)
        call(kernels.gelu, up, hidden, up.numel())
        down = self.down(hidden)
        y = torch.empty_like(x)
        call(kernels.add, x, down, y, x.numel())
        return y
