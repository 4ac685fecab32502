"""Row by row into the output, then one division."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/mean_axis.py"

kernels = build(r"""
void mean_axis(const float *x, float *y, long batch, long rows, long columns) {
    for (long s = 0; s < batch; s++) {
        float *out = y + s * columns;
        for (long j = 0; j < columns; j++) out[j] = 0.0f;
        for (long i = 0; i < rows; i++)
            for (long j = 0; j < columns; j++) out[j] += x[(s * rows + i) * columns + j];
        for (long j = 0; j < columns; j++) out[j] /= rows;
    }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        batch, rows, columns = x.shape
        y = x.new_empty(batch, columns)
        call(kernels.mean_axis, x, y, batch, rows, columns)
        return y
