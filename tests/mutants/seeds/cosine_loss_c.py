"""Three sums a row."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/cosine_loss.py"

kernels = build(r"""
#include <math.h>

void cosine_loss(const float *a, const float *b, float *loss, long rows, long columns) {
    double total = 0.0;
    for (long i = 0; i < rows; i++) {
        float product = 0.0f, left = 0.0f, right = 0.0f;
        for (long j = 0; j < columns; j++) {
            float p = a[i * columns + j], q = b[i * columns + j];
            product += p * q;
            left += p * p;
            right += q * q;
        }
        float norms = fmaxf(sqrtf(left), 1e-8f) * fmaxf(sqrtf(right), 1e-8f);
        total += 1.0f - product / norms;
    }
    loss[0] = (float)(total / rows);
}
""")


class ModelNew(nn.Module):
    def forward(self, a, b):
        loss = a.new_empty(())
        call(kernels.cosine_loss, a, b, loss, *a.shape)
        return loss
