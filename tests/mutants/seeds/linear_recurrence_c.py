"""State of each row in a register."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/linear_recurrence.py"

kernels = build(r"""
#include <math.h>

void linear_recurrence(const float *x, const float *gate, float *y, long rows, long steps) {
    for (long i = 0; i < rows; i++) {
        float h = 0.0f;
        for (long t = 0; t < steps; t++) {
            float decay = 1.0f / (1.0f + expf(-gate[i * steps + t]));
            h = decay * h + x[i * steps + t];
            y[i * steps + t] = h;
        }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x, gate):
        rows, steps = x.shape
        y = torch.empty_like(x)
        call(kernels.linear_recurrence, x, gate, y, rows, steps)
        return y
