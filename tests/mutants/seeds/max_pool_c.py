"""Bounds checked tap by tap."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/max_pool.py"

kernels = build(r"""
#include <math.h>

void max_pool(const float *x, float *y, long planes, long height, long width, long rows, long columns) {
    for (long p = 0; p < planes; p++)
        for (long i = 0; i < rows; i++)
            for (long j = 0; j < columns; j++) {
                float best = -INFINITY;
                for (long u = 0; u < 3; u++)
                    for (long v = 0; v < 3; v++) {
                        long r = i * 2 - 1 + u, c = j * 2 - 1 + v;
                        if (r >= 0 && r < height && c >= 0 && c < width) {
                            float value = x[(p * height + r) * width + c];
                            if (value > best) best = value;
                        }
                    }
                y[(p * rows + i) * columns + j] = best;
            }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        batch, channels, height, width = x.shape
        rows, columns = (height + 1) // 2, (width + 1) // 2
        y = x.new_empty(batch, channels, rows, columns)
        call(kernels.max_pool, x, y, batch * channels, height, width, rows, columns)
        return y
