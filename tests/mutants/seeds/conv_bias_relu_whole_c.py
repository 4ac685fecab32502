"""The whole layer in C over a padded copy."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level2/conv_bias_relu"

kernels = build(r"""
#include <stdlib.h>
#include <string.h>

void conv_bias_relu(const float *x, const float *weight, const float *bias, float *y, long batch, long channels_in,
                    long channels_out, long height, long width) {
    long stride = width + 2, plane = (height + 2) * stride;
    float *padded = calloc(channels_in * plane, sizeof(float)), *row = malloc(width * sizeof(float));
    for (long b = 0; b < batch; b++) {
        for (long c = 0; c < channels_in; c++)
            for (long i = 0; i < height; i++)
                memcpy(padded + c * plane + (i + 1) * stride + 1, x + ((b * channels_in + c) * height + i) * width,
                       width * sizeof(float));
        for (long o = 0; o < channels_out; o++)
            for (long i = 0; i < height; i++) {
                for (long j = 0; j < width; j++) row[j] = bias[o];
                for (long c = 0; c < channels_in; c++)
                    for (long u = 0; u < 3; u++)
                        for (long v = 0; v < 3; v++) {
                            float factor = weight[((o * channels_in + c) * 3 + u) * 3 + v];
                            const float *in = padded + c * plane + (i + u) * stride + v;
                            for (long j = 0; j < width; j++) row[j] += factor * in[j];
                        }
                float *out = y + ((b * channels_out + o) * height + i) * width;
                for (long j = 0; j < width; j++) out[j] = row[j] > 0.0f ? row[j] : 0.0f;
            }
    }
    free(padded);
    free(row);
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.bias = nn.Parameter(0.1 * torch.randn(channels_out, 1, 1))

    def forward(self, x):
        weight = self.conv.weight
        batch, channels, height, width = x.shape
        y = x.new_empty(batch, weight.shape[0], height, width)
        call(kernels.conv_bias_relu, x, weight, self.bias, y, batch, channels, weight.shape[0], height, width)
        return y
