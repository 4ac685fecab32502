"""One plain loop."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/selu.py"

kernels = build(r"""
#include <math.h>

void selu(const float *x, float *y, long n) {
    const float scale = 1.0507009873554805f, alpha = 1.6732632423543772f;
    for (long i = 0; i < n; i++) {
        float t = x[i];
        float positive = t > 0.0f ? t : 0.0f;
        float negative = t < 0.0f ? alpha * (expf(t) - 1.0f) : 0.0f;
        y[i] = scale * (positive + negative);
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        call(kernels.selu, x, y, x.numel())
        return y
