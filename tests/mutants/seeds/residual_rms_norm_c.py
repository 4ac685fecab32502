"""Both outputs in two passes."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level2/residual_rms_norm"

kernels = build(r"""
#include <math.h>

void residual_rms_norm(const float *x, const float *residual, const float *weight, float *y, float *total, long rows,
                       long columns) {
    for (long i = 0; i < rows; i++) {
        float squares = 0.0f;
        for (long j = 0; j < columns; j++) {
            long at = i * columns + j;
            total[at] = x[at] + residual[at];
            squares += total[at] * total[at];
        }
        float scale = 1.0f / sqrtf(squares / columns + 1e-5f);
        for (long j = 0; j < columns; j++) y[i * columns + j] = total[i * columns + j] * scale * weight[j];
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, columns: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns))

    def forward(self, x, residual):
        rows, columns = x.shape
        y, total = torch.empty_like(x), torch.empty_like(x)
        call(kernels.residual_rms_norm, x, residual, self.weight, y, total, rows, columns)
        return y, total
