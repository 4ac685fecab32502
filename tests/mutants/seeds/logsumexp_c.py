"""Blocks of 32 columns that are merged."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/logsumexp.py"

kernels = build(r"""
#include <math.h>

void logsumexp(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        const float *row = x + i * columns;
        float largest = -INFINITY, sum = 0.0f;
        for (long start = 0; start < columns; start += 32) {
            long end = start + 32 < columns ? start + 32 : columns;
            float block = largest;
            for (long j = start; j < end; j++) block = fmaxf(block, row[j]);
            sum *= expf(largest - block);
            largest = block;
            for (long j = start; j < end; j++) sum += expf(row[j] - largest);
        }
        y[i] = largest + logf(sum);
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = x.new_empty(rows)
        call(kernels.logsumexp, x, y, rows, columns)
        return y
