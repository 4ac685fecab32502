"""PyTorch projects; normalisation and attention in C, head by head."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level3/attention_block"

kernels = build(r"""
#include <math.h>
#include <stdlib.h>

static void normalise(const float *x, const float *weight, float *y, long n) {
    float squares = 0.0f;
    for (long i = 0; i < n; i++) squares += x[i] * x[i];
    float scale = 1.0f / sqrtf(squares / n + 1e-6f);
    for (long i = 0; i < n; i++) y[i] = x[i] * scale * weight[i];
}

void attention(const float *qkv, const float *query_weight, const float *key_weight, float *y, long batch, long tokens,
               long heads, long size) {
    long width = heads * size;
    float *keys = malloc(tokens * size * sizeof(float)), *query = malloc(size * sizeof(float));
    float *scores = malloc(tokens * sizeof(float));
    for (long b = 0; b < batch; b++)
        for (long h = 0; h < heads; h++) {
            const float *first = qkv + b * tokens * 3 * width + h * size;
            for (long t = 0; t < tokens; t++)
                normalise(first + t * 3 * width + width, key_weight, keys + t * size, size);
            for (long t = 0; t < tokens; t++) {
                normalise(first + t * 3 * width, query_weight, query, size);
                float largest = -INFINITY, sum = 0.0f;
                for (long j = 0; j <= t; j++) {
                    float score = 0.0f;
                    for (long d = 0; d < size; d++) score += query[d] * keys[j * size + d];
                    scores[j] = score / sqrtf((float)size);
                    if (scores[j] > largest) largest = scores[j];
                }
                for (long j = 0; j <= t; j++) {
                    scores[j] = expf(scores[j] - largest);
                    sum += scores[j];
                }
                float *out = y + (b * tokens + t) * width + h * size;
                for (long d = 0; d < size; d++) out[d] = 0.0f;
                for (long j = 0; j <= t; j++) {
                    const float *value = first + j * 3 * width + 2 * width;
                    for (long d = 0; d < size; d++) out[d] += scores[j] / sum * value[d];
                }
            }
        }
    free(keys);
    free(query);
    free(scores);
}
""")


class ModelNew(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.query_weight = nn.Parameter(0.5 + torch.rand(width // heads))
        self.key_weight = nn.Parameter(0.5 + torch.rand(width // heads))

    def forward(self, x):
        batch, tokens, width = x.shape
        qkv = self.qkv(x)
        y = torch.empty_like(x)
        call(
            kernels.attention,
            qkv,
            self.query_weight,
            self.key_weight,
            y,
            batch,
            tokens,
            self.heads,
            width // self.heads,
        )
        return x + self.out(y)
