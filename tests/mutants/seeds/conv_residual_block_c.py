"""PyTorch convolves; group normalisation with ReLU, and the sum with ReLU, in C."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level3/conv_residual_block"

kernels = build(r"""
#include <math.h>

void group_norm_relu(const float *x, const float *weight, const float *bias, float *y, long batch, long channels,
                     long groups, long plane) {
    long size = channels / groups;
    for (long b = 0; b < batch; b++)
        for (long g = 0; g < groups; g++) {
            long first = (b * channels + g * size) * plane;
            double sum = 0.0, squares = 0.0;
            for (long i = first; i < first + size * plane; i++) {
                sum += x[i];
                squares += (double)x[i] * x[i];
            }
            double mean = sum / (size * plane);
            double scale = 1.0 / sqrt(squares / (size * plane) - mean * mean + 1e-5);
            for (long c = 0; c < size; c++)
                for (long i = 0; i < plane; i++) {
                    long at = first + c * plane + i;
                    float value = (float)((x[at] - mean) * scale) * weight[g * size + c] + bias[g * size + c];
                    y[at] = value > 0.0f ? value : 0.0f;
                }
        }
}

void add_relu(const float *x, const float *other, float *y, long n) {
    for (long i = 0; i < n; i++) {
        float sum = x[i] + other[i];
        y[i] = sum > 0.0f ? sum : 0.0f;
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, kernel_size=3, padding=1, bias=False)
        self.norm = nn.GroupNorm(groups, channels)
        self.conv2 = nn.Conv2d(channels, channels, kernel_size=3, padding=1)
        # A fresh GroupNorm scales by one and shifts by zero, which nobody would miss.
        nn.init.uniform_(self.norm.weight, 0.25, 0.75)
        nn.init.normal_(self.norm.bias, std=0.1)

    def forward(self, x):
        first = self.conv1(x)
        batch, channels, height, width = x.shape
        hidden = torch.empty_like(x)
        call(
            kernels.group_norm_relu,
            first,
            self.norm.weight,
            self.norm.bias,
            hidden,
            batch,
            channels,
            self.norm.num_groups,
            height * width,
        )
        second = self.conv2(hidden)
        y = torch.empty_like(x)
        call(kernels.add_relu, x, second, y, x.numel())
        return y
