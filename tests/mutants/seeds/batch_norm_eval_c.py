"""Scale and shift of each channel, computed once a call."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/batch_norm_eval.py"

kernels = build(r"""
#include <math.h>

void batch_norm_eval(const float *x, const float *weight, const float *bias, const float *mean, const float *variance,
                     float *y, long batch, long channels, long plane) {
    for (long b = 0; b < batch; b++)
        for (long c = 0; c < channels; c++) {
            float scale = weight[c] / sqrtf(variance[c] + 1e-5f);
            float shift = bias[c] - mean[c] * scale;
            long offset = (b * channels + c) * plane;
            for (long i = 0; i < plane; i++) y[offset + i] = x[offset + i] * scale + shift;
        }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm = nn.BatchNorm2d(channels).eval()

    def forward(self, x):
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        norm = self.norm
        call(
            kernels.batch_norm_eval,
            x,
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
