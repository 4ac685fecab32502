"""One plain loop."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/elu.py"

kernels = build(r"""
#include <math.h>

void elu(const float *x, float *y, long n) {
    for (long i = 0; i < n; i++) {
        float t = x[i];
        if (t > 0.0f)
            y[i] = t;
        else
            y[i] = 1.0f * (expf(t) - 1.0f);
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        call(kernels.elu, x, y, x.numel())
        return y
