"""Only the terms that can be other than zero."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/lower_triangular_matmul.py"

kernels = build(r"""
void lower_triangular_matmul(const float *a, const float *b, float *c, long n) {
    for (long i = 0; i < n; i++) {
        for (long j = 0; j <= i; j++) {
            float sum = 0.0f;
            for (long k = j; k <= i; k++) sum += a[i * n + k] * b[k * n + j];
            c[i * n + j] = sum;
        }
        for (long j = i + 1; j < n; j++) c[i * n + j] = 0.0f;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        call(kernels.lower_triangular_matmul, a, b, c, a.shape[0])
        return c
