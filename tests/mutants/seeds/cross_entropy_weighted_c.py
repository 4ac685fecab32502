"""Row losses; ignored rows are zero."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/cross_entropy_weighted.py"

kernels = build(r"""
#include <math.h>

void cross_entropy_weighted(const float *logits, const long *targets, const float *weight, float *loss, long rows,
                            long classes) {
    for (long i = 0; i < rows; i++) {
        const float *row = logits + i * classes;
        long target = targets[i];
        if (target == -100) {
            loss[i] = 0.0f;
            continue;
        }
        float largest = row[0], sum = 0.0f;
        for (long j = 1; j < classes; j++)
            if (row[j] > largest) largest = row[j];
        for (long j = 0; j < classes; j++) sum += expf(row[j] - largest);
        loss[i] = weight[target] * (largest + logf(sum) - row[target]);
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(classes))

    def forward(self, logits, targets):
        loss = logits.new_empty(logits.shape[0])
        call(kernels.cross_entropy_weighted, logits, targets, self.weight, loss, *logits.shape)
        return loss
