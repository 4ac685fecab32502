"""One running product a row."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/cumprod.py"

kernels = build(r"""
void cumprod(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        float product = 1.0f;
        for (long j = 0; j < columns; j++) {
            product *= x[i * columns + j];
            y[i * columns + j] = product;
        }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = torch.empty_like(x)
        call(kernels.cumprod, x, y, rows, columns)
        return y
