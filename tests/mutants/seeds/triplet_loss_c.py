"""Distances of each row, PyTorch's 1e-6 inside them."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/triplet_loss.py"

kernels = build(r"""
#include <math.h>

void triplet_loss(const float *anchor, const float *positive, const float *negative, float *loss, long rows,
                  long columns) {
    double total = 0.0;
    for (long i = 0; i < rows; i++) {
        float near = 0.0f, far = 0.0f;
        for (long j = 0; j < columns; j++) {
            float p = anchor[i * columns + j] - positive[i * columns + j] + 1e-6f;
            float q = anchor[i * columns + j] - negative[i * columns + j] + 1e-6f;
            near += p * p;
            far += q * q;
        }
        float margin = sqrtf(near) - sqrtf(far) + 1.0f;
        if (margin > 0.0f) total += margin;
    }
    loss[0] = (float)(total / rows);
}
""")


class ModelNew(nn.Module):
    def forward(self, anchor, positive, negative):
        loss = anchor.new_empty(())
        call(kernels.triplet_loss, anchor, positive, negative, loss, *anchor.shape)
        return loss
