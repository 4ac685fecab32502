"""Angles computed per position."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/rotary_embedding.py"

kernels = build(r"""
#include <math.h>

void rotary_embedding(const float *x, float *y, long batch, long tokens, long width) {
    long half = width / 2;
    for (long b = 0; b < batch; b++)
        for (long t = 0; t < tokens; t++)
            for (long d = 0; d < half; d++) {
                double angle = t * pow(10000.0, -(double)d / half);
                float cosine = (float)cos(angle), sine = (float)sin(angle);
                const float *in = x + (b * tokens + t) * width;
                float *out = y + (b * tokens + t) * width;
                out[d] = in[d] * cosine - in[d + half] * sine;
                out[d + half] = in[d] * sine + in[d + half] * cosine;
            }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        call(kernels.rotary_embedding, x, y, *x.shape)
        return y
