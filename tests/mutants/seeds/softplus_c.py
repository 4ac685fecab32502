"""PyTorch's threshold of 20, log1p below it."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/softplus.py"

kernels = build(r"""
#include <math.h>

void softplus(const float *x, float *y, long n) {
    for (long i = 0; i < n; i++) {
        float t = x[i];
        y[i] = t > 20.0f ? t : log1pf(expf(t));
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        call(kernels.softplus, x, y, x.numel())
        return y
