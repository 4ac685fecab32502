"""Adds each row where it belongs."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/segment_sum.py"

kernels = build(r"""
#include <string.h>

void segment_sum(const float *x, const long *segment, float *y, long rows, long columns, long segments) {
    memset(y, 0, segments * columns * sizeof(float));
    for (long i = 0; i < rows; i++) {
        float *out = y + segment[i] * columns;
        for (long j = 0; j < columns; j++) out[j] += x[i * columns + j];
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x, segment):
        y = x.new_empty(12, x.shape[1])
        call(kernels.segment_sum, x, segment, y, x.shape[0], x.shape[1], 12)
        return y
