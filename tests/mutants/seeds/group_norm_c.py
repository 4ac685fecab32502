"""Two passes over each group."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/group_norm.py"

kernels = build(r"""
#include <math.h>

void group_norm(const float *x, const float *weight, const float *bias, float *y, long batch, long channels,
                long groups, long plane) {
    long size = channels / groups;
    for (long b = 0; b < batch; b++)
        for (long g = 0; g < groups; g++) {
            const float *group = x + (b * channels + g * size) * plane;
            float *out = y + (b * channels + g * size) * plane;
            float sum = 0.0f, squares = 0.0f;
            for (long i = 0; i < size * plane; i++) sum += group[i];
            float mean = sum / (size * plane);
            for (long i = 0; i < size * plane; i++) squares += (group[i] - mean) * (group[i] - mean);
            float scale = 1.0f / sqrtf(squares / (size * plane) + 1e-5f);
            for (long c = 0; c < size; c++)
                for (long i = 0; i < plane; i++) {
                    float normal = (group[c * plane + i] - mean) * scale;
                    out[c * plane + i] = normal * weight[g * size + c] + bias[g * size + c];
                }
        }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels, groups):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)

    def forward(self, x):
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        norm = self.norm
        call(kernels.group_norm, x, norm.weight, norm.bias, y, batch, channels, norm.num_groups, height * width)
        return y
