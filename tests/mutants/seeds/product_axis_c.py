"""Two halves multiplied at the end."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/product_axis.py"

kernels = build(r"""
void product_axis(const float *x, float *y, long batch, long rows, long columns) {
    for (long s = 0; s < batch; s++)
        for (long j = 0; j < columns; j++) {
            const float *column = x + s * rows * columns + j;
            float even = 1.0f, odd = 1.0f;
            for (long i = 0; i < rows; i += 2) even *= column[i * columns];
            for (long i = 1; i < rows; i += 2) odd *= column[i * columns];
            y[s * columns + j] = even * odd;
        }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        batch, rows, columns = x.shape
        y = x.new_empty(batch, columns)
        call(kernels.product_axis, x, y, batch, rows, columns)
        return y
