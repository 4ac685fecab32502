"""Tiles of 16 by 16 with clipped edges."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/batched_matmul.py"

kernels = build(r"""
void batched_matmul(const float *a, const float *b, float *c, long batch, long m, long n, long k) {
    const long tile = 16;
    for (long i = 0; i < batch * m * n; i++) c[i] = 0.0f;
    for (long s = 0; s < batch; s++) {
        const float *left = a + s * m * k, *right = b + s * k * n;
        float *out = c + s * m * n;
        for (long i0 = 0; i0 < m; i0 += tile)
            for (long p0 = 0; p0 < k; p0 += tile) {
                long i1 = i0 + tile < m ? i0 + tile : m;
                long p1 = p0 + tile < k ? p0 + tile : k;
                for (long i = i0; i < i1; i++)
                    for (long p = p0; p < p1; p++) {
                        float factor = left[i * k + p];
                        for (long j = 0; j < n; j++) out[i * n + j] += factor * right[p * n + j];
                    }
            }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        batch, m, k = a.shape
        n = b.shape[2]
        c = a.new_empty(batch, m, n)
        call(kernels.batched_matmul, a, b, c, batch, m, n, k)
        return c
