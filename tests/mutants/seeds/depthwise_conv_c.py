"""A padded copy of each plane, then nine taps."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/depthwise_conv.py"

kernels = build(r"""
#include <stdlib.h>
#include <string.h>

void depthwise_conv(const float *x, const float *weight, const float *bias, float *y, long batch, long channels,
                    long height, long width) {
    long stride = width + 2;
    float *padded = malloc((height + 2) * stride * sizeof(float));
    memset(padded, 0, (height + 2) * stride * sizeof(float));
    for (long p = 0; p < batch * channels; p++) {
        const float *w = weight + p % channels * 9;
        for (long i = 0; i < height; i++)
            for (long j = 0; j < width; j++) padded[(i + 1) * stride + j + 1] = x[(p * height + i) * width + j];
        for (long i = 0; i < height; i++)
            for (long j = 0; j < width; j++) {
                float sum = bias[p % channels];
                for (long u = 0; u < 3; u++)
                    for (long v = 0; v < 3; v++) sum += w[u * 3 + v] * padded[(i + u) * stride + j + v];
                y[(p * height + i) * width + j] = sum;
            }
    }
    free(padded);
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)

    def forward(self, x):
        y = torch.empty_like(x)
        call(kernels.depthwise_conv, x, self.conv.weight, self.conv.bias, y, *x.shape)
        return y
