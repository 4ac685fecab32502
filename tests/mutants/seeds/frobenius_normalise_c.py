"""Partial sums of blocks, then one factor."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/frobenius_normalise.py"

kernels = build(r"""
#include <math.h>

void frobenius_normalise(const float *x, float *y, long n) {
    double total = 0.0;
    for (long start = 0; start < n; start += 256) {
        long end = start + 256 < n ? start + 256 : n;
        float part = 0.0f;
        for (long i = start; i < end; i++) part += x[i] * x[i];
        total += part;
    }
    float factor = (float)(1.0 / sqrt(total));
    for (long i = 0; i < n; i++) y[i] = x[i] * factor;
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        call(kernels.frobenius_normalise, x, y, x.numel())
        return y
