"""Two halves of a row."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/swiglu.py"

kernels = build(r"""
#include <math.h>

void swiglu(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        const float *a = x + i * 2 * columns, *b = a + columns;
        for (long j = 0; j < columns; j++) {
            float gate = 1.0f / (1.0f + expf(-a[j]));
            y[i * columns + j] = a[j] * gate * b[j];
        }
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape[0], x.shape[1] // 2
        y = x.new_empty(rows, columns)
        call(kernels.swiglu, x, y, rows, columns)
        return y
