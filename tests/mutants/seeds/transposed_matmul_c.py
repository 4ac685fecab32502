"""Rows of the result in registers, four columns at a time."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/transposed_matmul.py"

kernels = build(r"""
void transposed_matmul(const float *a, const float *b, float *c, long m, long n, long k) {
    for (long i = 0; i < m; i++) {
        long j = 0;
        for (; j + 4 <= n; j += 4) {
            float sum0 = 0.0f, sum1 = 0.0f, sum2 = 0.0f, sum3 = 0.0f;
            for (long p = 0; p < k; p++) {
                float left = a[p * m + i];
                sum0 += left * b[j * k + p];
                sum1 += left * b[(j + 1) * k + p];
                sum2 += left * b[(j + 2) * k + p];
                sum3 += left * b[(j + 3) * k + p];
            }
            c[i * n + j] = sum0;
            c[i * n + j + 1] = sum1;
            c[i * n + j + 2] = sum2;
            c[i * n + j + 3] = sum3;
        }
        for (; j < n; j++) {
            float sum = 0.0f;
            for (long p = 0; p < k; p++) sum += a[p * m + i] * b[j * k + p];
            c[i * n + j] = sum;
        }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        k, m = a.shape
        n = b.shape[0]
        c = a.new_empty(m, n)
        call(kernels.transposed_matmul, a, b, c, m, n, k)
        return c
