"""Online softmax over the keys of each query."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/causal_attention.py"

kernels = build(r"""
#include <math.h>

void causal_attention(const float *q, const float *k, const float *v, float *y, long heads, long tokens, long width) {
    float factor = 1.0f / sqrtf((float)width);
    for (long h = 0; h < heads; h++)
        for (long i = 0; i < tokens; i++) {
            const float *query = q + (h * tokens + i) * width;
            float *out = y + (h * tokens + i) * width;
            float largest = -INFINITY, sum = 0.0f;
            for (long d = 0; d < width; d++) out[d] = 0.0f;
            for (long j = 0; j <= i; j++) {
                const float *key = k + (h * tokens + j) * width, *value = v + (h * tokens + j) * width;
                float score = 0.0f;
                for (long d = 0; d < width; d++) score += query[d] * key[d];
                score *= factor;
                float next = fmaxf(largest, score);
                float shrink = expf(largest - next), weight = expf(score - next);
                largest = next;
                sum = sum * shrink + weight;
                for (long d = 0; d < width; d++) out[d] = out[d] * shrink + weight * value[d];
            }
            for (long d = 0; d < width; d++) out[d] /= sum;
        }
}
""")


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        y = torch.empty_like(q)
        batch, heads, tokens, width = q.shape
        call(kernels.causal_attention, q, k, v, y, batch * heads, tokens, width)
        return y
