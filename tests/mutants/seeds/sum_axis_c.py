"""Blocks of 16 rows, summed apart and added up."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/sum_axis.py"

kernels = build(r"""
void sum_axis(const float *x, float *y, long batch, long rows, long columns) {
    for (long s = 0; s < batch; s++)
        for (long j = 0; j < columns; j++) {
            float total = 0.0f;
            for (long start = 0; start < rows; start += 16) {
                long end = start + 16 < rows ? start + 16 : rows;
                float part = 0.0f;
                for (long i = start; i < end; i++) part += x[(s * rows + i) * columns + j];
                total += part;
            }
            y[s * columns + j] = total;
        }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        batch, rows, columns = x.shape
        y = x.new_empty(batch, 1, columns)
        call(kernels.sum_axis, x, y, batch, rows, columns)
        return y
