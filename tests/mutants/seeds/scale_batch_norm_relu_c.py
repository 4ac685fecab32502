"""Both scales folded into one."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/scale_batch_norm_relu.py"

kernels = build(r"""
#include <math.h>

void scale_batch_norm_relu(const float *x, const float *scale, const float *weight, const float *bias,
                           const float *mean, const float *variance, float *y, long batch, long channels, long plane) {
    for (long b = 0; b < batch; b++)
        for (long c = 0; c < channels; c++) {
            float normal = weight[c] / sqrtf(variance[c] + 1e-5f);
            float factor = scale[c] * normal, shift = bias[c] - mean[c] * normal;
            for (long i = 0; i < plane; i++) {
                long at = (b * channels + c) * plane + i;
                float value = x[at] * factor + shift;
                y[at] = value > 0.0f ? value : 0.0f;
            }
        }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(channels, 1, 1))
        self.norm = nn.BatchNorm2d(channels).eval()

    def forward(self, x):
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        norm = self.norm
        call(
            kernels.scale_batch_norm_relu,
            x,
            self.scale,
            norm.weight,
            norm.bias,
            norm.running_mean,
            norm.running_var,
            y,
            batch,
            channels,
            height * width,
        )
        return y
