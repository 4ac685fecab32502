"""Welford's running mean and squares."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/variance_axis.py"

kernels = build(r"""
void variance_axis(const float *x, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        float mean = 0.0f, squares = 0.0f;
        for (long j = 0; j < columns; j++) {
            float value = x[i * columns + j];
            float before = value - mean;
            mean += before / (j + 1);
            squares += before * (value - mean);
        }
        y[i] = squares / (columns - 1);
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        rows, columns = x.shape
        y = x.new_empty(rows)
        call(kernels.variance_axis, x, y, rows, columns)
        return y
