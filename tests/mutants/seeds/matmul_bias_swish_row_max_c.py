"""PyTorch multiplies; the rest in one loop."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level2/matmul_bias_swish_row_max"

kernels = build(r"""
#include <math.h>

void bias_swish_row_max(const float *x, const float *bias, float *y, long rows, long columns) {
    for (long i = 0; i < rows; i++) {
        float best = -INFINITY;
        for (long j = 0; j < columns; j++) {
            float t = x[i * columns + j] + bias[j];
            float value = t / (1.0f + expf(-t));
            if (value > best) best = value;
        }
        y[i] = best;
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, features_in: int, features_out: int) -> None:
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        x = x @ self.linear.weight.T
        y = x.new_empty(x.shape[0])
        call(kernels.bias_swish_row_max, x, self.linear.bias, y, *x.shape)
        return y
