"""Scores of a query in a buffer."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/padded_attention.py"

kernels = build(r"""
#include <math.h>
#include <stdlib.h>

void padded_attention(const float *q, const float *k, const float *v, const long *lengths, float *y, long batch,
                      long tokens, long width) {
    float *scores = malloc(tokens * sizeof(float));
    for (long b = 0; b < batch; b++)
        for (long i = 0; i < tokens; i++) {
            const float *query = q + (b * tokens + i) * width;
            float largest = -INFINITY, sum = 0.0f;
            for (long j = 0; j < lengths[b]; j++) {
                float score = 0.0f;
                for (long d = 0; d < width; d++) score += query[d] * k[(b * tokens + j) * width + d];
                scores[j] = score / sqrtf((float)width);
                largest = fmaxf(largest, scores[j]);
            }
            for (long j = 0; j < lengths[b]; j++) {
                scores[j] = expf(scores[j] - largest);
                sum += scores[j];
            }
            for (long d = 0; d < width; d++) {
                float value = 0.0f;
                for (long j = 0; j < lengths[b]; j++) value += scores[j] * v[(b * tokens + j) * width + d];
                y[(b * tokens + i) * width + d] = value / sum;
            }
        }
    free(scores);
}
""")


class ModelNew(nn.Module):
    def forward(self, q, k, v, lengths):
        y = torch.empty_like(q)
        call(kernels.padded_attention, q, k, v, lengths, y, *q.shape)
        return y
