"""Sum and sum of squares in one pass, in double."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/instance_norm.py"

kernels = build(r"""
#include <math.h>

void instance_norm(const float *x, float *y, long planes, long size) {
    for (long p = 0; p < planes; p++) {
        const float *plane = x + p * size;
        double sum = 0.0, squares = 0.0;
        for (long i = 0; i < size; i++) {
            sum += plane[i];
            squares += (double)plane[i] * plane[i];
        }
        double mean = sum / size;
        double variance = squares / size - mean * mean;
        float scale = (float)(1.0 / sqrt(variance + 1e-5));
        for (long i = 0; i < size; i++) y[p * size + i] = (plane[i] - (float)mean) * scale;
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.InstanceNorm2d(channels)

    def forward(self, x):
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        call(kernels.instance_norm, x, y, batch * channels, height * width)
        return y
