"""Row losses, averaged in double."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/cross_entropy.py"

kernels = build(r"""
#include <math.h>

void cross_entropy(const float *logits, const long *targets, float *loss, long rows, long classes) {
    double total = 0.0;
    for (long i = 0; i < rows; i++) {
        const float *row = logits + i * classes;
        float largest = row[0], sum = 0.0f;
        for (long j = 1; j < classes; j++)
            if (row[j] > largest) largest = row[j];
        for (long j = 0; j < classes; j++) sum += expf(row[j] - largest);
        total += largest + logf(sum) - row[targets[i]];
    }
    loss[0] = (float)(total / rows);
}
""")


class ModelNew(nn.Module):
    def forward(self, logits, targets):
        loss = logits.new_empty(())
        call(kernels.cross_entropy, logits, targets, loss, *logits.shape)
        return loss
