"""PyTorch multiplies; bias, GELU and scale in one loop."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level2/linear_gelu_scale"

kernels = build(r"""
#include <math.h>

void bias_gelu_scale(const float *x, const float *bias, const float *scale, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++)
        for (long j = 0; j < columns; j++) {
            float t = x[i * columns + j] + bias[j];
            y[i * columns + j] = 0.5f * t * (1.0f + erff(t * 0.70710678f)) * scale[j];
        }
}
""")


class ModelNew(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        # Bounded and away from one: no feature can go without its factor.
        self.scale = nn.Parameter(0.5 + torch.rand(features_out))

    def forward(self, x):
        x = x @ self.linear.weight.T
        y = torch.empty_like(x)
        call(kernels.bias_gelu_scale, x, self.linear.bias, self.scale, y, *x.shape)
        return y
