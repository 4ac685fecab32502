"""Rows of b, blocks of 64 along k."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level1/matmul"

kernels = build(r"""
#include <string.h>

void matmul(const float *a, const float *b, float *c, long m, long n, long k) {
    memset(c, 0, m * n * sizeof(float));
    for (long p0 = 0; p0 < k; p0 += 64) {
        long p1 = p0 + 64 < k ? p0 + 64 : k;
        for (long i = 0; i < m; i++)
            for (long p = p0; p < p1; p++) {
                float factor = a[i * k + p];
                for (long j = 0; j < n; j++) c[i * n + j] += factor * b[p * n + j];
            }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        n = b.shape[1]
        c = a.new_empty(m, n)
        call(kernels.matmul, a, b, c, m, n, k)
        return c
