"""Blocks of 64 elements and a shorter last one."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/leaky_relu.py"

kernels = build(r"""
#include <math.h>

void leaky_relu(const float *x, float *y, long n) {
    const long block = 64;
    for (long start = 0; start < n; start += block) {
        long end = start + block < n ? start + block : n;
        for (long i = start; i < end; i++) {
            float t = x[i];
            y[i] = t > 0.0f ? t : 0.01f * t;
        }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        call(kernels.leaky_relu, x, y, x.numel())
        return y
