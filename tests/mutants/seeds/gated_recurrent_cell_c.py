"""All three gates of a unit together."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/gated_recurrent_cell.py"

kernels = build(r"""
#include <math.h>

static float dot(const float *a, const float *b, long n) {
    float sum = 0.0f;
    for (long i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static float sigmoid(float t) { return 1.0f / (1.0f + expf(-t)); }

void gated_recurrent_cell(const float *x, const float *h, const float *wx, const float *wh, const float *bx,
                          const float *bh, float *y, long batch, long width, long hidden) {
    for (long i = 0; i < batch; i++) {
        const float *in = x + i * width, *state = h + i * hidden;
        for (long j = 0; j < hidden; j++) {
            long z = hidden + j, n = 2 * hidden + j;
            float reset = sigmoid(dot(in, wx + j * width, width) + bx[j] +
                                  dot(state, wh + j * hidden, hidden) + bh[j]);
            float update = sigmoid(dot(in, wx + z * width, width) + bx[z] +
                                   dot(state, wh + z * hidden, hidden) + bh[z]);
            float recurrent = dot(state, wh + n * hidden, hidden) + bh[n];
            float candidate = tanhf(dot(in, wx + n * width, width) + bx[n] + reset * recurrent);
            y[i * hidden + j] = (1.0f - update) * candidate + update * state[j];
        }
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.cell = nn.GRUCell(width, hidden)

    def forward(self, x, h):
        cell = self.cell
        y = torch.empty_like(h)
        call(
            kernels.gated_recurrent_cell,
            x,
            h,
            cell.weight_ih,
            cell.weight_hh,
            cell.bias_ih,
            cell.bias_hh,
            y,
            x.shape[0],
            x.shape[1],
            h.shape[1],
        )
        return y
