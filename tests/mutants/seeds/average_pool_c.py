"""Clipped windows, always divided by nine."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/average_pool.py"

kernels = build(r"""
void average_pool(const float *x, float *y, long planes, long height, long width, long rows, long columns) {
    for (long p = 0; p < planes; p++)
        for (long i = 0; i < rows; i++)
            for (long j = 0; j < columns; j++) {
                long top = i * 2 - 1, left = j * 2 - 1;
                long bottom = top + 3 < height ? top + 3 : height, right = left + 3 < width ? left + 3 : width;
                if (top < 0) top = 0;
                if (left < 0) left = 0;
                float sum = 0.0f;
                for (long r = top; r < bottom; r++)
                    for (long c = left; c < right; c++) sum += x[(p * height + r) * width + c];
                y[(p * rows + i) * columns + j] = sum / 9.0f;
            }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        batch, channels, height, width = x.shape
        rows, columns = (height + 1) // 2, (width + 1) // 2
        y = x.new_empty(batch, channels, rows, columns)
        call(kernels.average_pool, x, y, batch * channels, height, width, rows, columns)
        return y
