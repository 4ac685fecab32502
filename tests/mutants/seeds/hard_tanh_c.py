"""Two comparisons an element, eight elements at a time."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/hard_tanh.py"

kernels = build(r"""
#include <math.h>

void hard_tanh(const float *x, float *y, long n) {
    long whole = n - n % 8;
    for (long i = 0; i < whole; i += 8)
        for (long j = i; j < i + 8; j++) {
            float t = x[j] < -1.0f ? -1.0f : x[j];
            y[j] = t > 1.0f ? 1.0f : t;
        }
    for (long i = whole; i < n; i++) {
        float t = x[i] < -1.0f ? -1.0f : x[i];
        y[i] = t > 1.0f ? 1.0f : t;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        call(kernels.hard_tanh, x, y, x.numel())
        return y
