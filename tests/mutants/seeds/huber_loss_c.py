"""Squares below one, distance above."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/huber_loss.py"

kernels = build(r"""
#include <math.h>

void huber_loss(const float *predictions, const float *targets, float *loss, long n) {
    double total = 0.0;
    for (long i = 0; i < n; i++) {
        float distance = fabsf(predictions[i] - targets[i]);
        if (distance < 1.0f)
            total += 0.5f * distance * distance;
        else
            total += distance - 0.5f;
    }
    loss[0] = (float)(total / n);
}
""")


class ModelNew(nn.Module):
    def forward(self, predictions, targets):
        loss = predictions.new_empty(())
        call(kernels.huber_loss, predictions, targets, loss, predictions.numel())
        return loss
