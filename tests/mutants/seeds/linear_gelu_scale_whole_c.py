"""The whole layer in C, rows in blocks of eight."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level2/linear_gelu_scale"

kernels = build(r"""
#include <math.h>

void linear_gelu_scale(const float *x, const float *weight, const float *bias, const float *scale, float *y,
                       long batch, long features_in, long features_out) {
    for (long start = 0; start < batch; start += 8) {
        long end = start + 8 < batch ? start + 8 : batch;
        for (long o = 0; o < features_out; o++)
            for (long i = start; i < end; i++) {
                float partial[16] = {0.0f}, sum = 0.0f;
                long p = 0;
                for (; p + 16 <= features_in; p += 16)
                    for (long lane = 0; lane < 16; lane++)
                        partial[lane] += x[i * features_in + p + lane] * weight[o * features_in + p + lane];
                for (; p < features_in; p++) sum += x[i * features_in + p] * weight[o * features_in + p];
                for (long lane = 0; lane < 16; lane++) sum += partial[lane];
                float t = sum + bias[o];
                y[i * features_out + o] = 0.5f * t * (1.0f + erff(t * 0.70710678f)) * scale[o];
            }
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
        features_out = self.scale.shape[0]
        y = x.new_empty(x.shape[0], features_out)
        call(kernels.linear_gelu_scale, x, self.linear.weight, self.linear.bias, self.scale, y, *x.shape, features_out)
        return y
