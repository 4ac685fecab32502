"""Clamped by hand."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/hard_swish.py"

kernels = build(r"""
#include <math.h>

void hard_swish(const float *x, float *y, long n) {
    for (long i = 0; i < n; i++) {
        float t = x[i] + 3.0f;
        if (t < 0.0f) t = 0.0f;
        if (t > 6.0f) t = 6.0f;
        y[i] = x[i] * t / 6.0f;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        call(kernels.hard_swish, x, y, x.numel())
        return y
