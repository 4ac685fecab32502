"""One loop, four elements at a time, and a tail."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/gelu_tanh.py"

kernels = build(r"""
#include <math.h>

void gelu_tanh(const float *x, float *y, long n) {
    long i = 0;
    for (; i + 4 <= n; i += 4)
        for (long j = 0; j < 4; j++) {
            float t = x[i + j];
            y[i + j] = 0.5f * t * (1.0f + tanhf(0.7978845608f * (t + 0.044715f * t * t * t)));
        }
    for (; i < n; i++) {
        float t = x[i];
        y[i] = 0.5f * t * (1.0f + tanhf(0.7978845608f * (t + 0.044715f * t * t * t)));
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        call(kernels.gelu_tanh, x, y, x.numel())
        return y
