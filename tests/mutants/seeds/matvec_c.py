"""Eight partial sums and a tail."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/matvec.py"

kernels = build(r"""
void matvec(const float *a, const float *b, float *c, long m, long k) {
    for (long i = 0; i < m; i++) {
        float partial[8] = {0.0f};
        const float *row = a + i * k;
        long p = 0;
        for (; p + 8 <= k; p += 8)
            for (long lane = 0; lane < 8; lane++) partial[lane] += row[p + lane] * b[p + lane];
        float sum = 0.0f;
        for (long lane = 0; lane < 8; lane++) sum += partial[lane];
        for (; p < k; p++) sum += row[p] * b[p];
        c[i] = sum;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        m, k = a.shape
        c = a.new_empty(m, 1)
        call(kernels.matvec, a, b, c, m, k)
        return c
