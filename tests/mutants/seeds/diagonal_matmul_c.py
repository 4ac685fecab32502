"""Each row times its factor."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/diagonal_matmul.py"

kernels = build(r"""
void diagonal_matmul(const float *a, const float *b, float *c, long n, long m) {
    for (long i = 0; i < n; i++) {
        float factor = a[i];
        for (long j = 0; j < m; j++) c[i * m + j] = factor * b[i * m + j];
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        n, m = b.shape
        c = torch.empty_like(b)
        call(kernels.diagonal_matmul, a, b, c, n, m)
        return c
