"""No intermediate in memory."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/linear_sigmoid_sum.py"

kernels = build(r"""
#include <math.h>

void linear_sigmoid_sum(const float *x, const float *weight, const float *bias, float *y,
                        long batch, long features_in, long features_out) {
    for (long i = 0; i < batch; i++) {
        float total = 0.0f;
        for (long o = 0; o < features_out; o++) {
            float sum = bias[o];
            for (long p = 0; p < features_in; p++) sum += x[i * features_in + p] * weight[o * features_in + p];
            total += 1.0f / (1.0f + expf(-sum));
        }
        y[i] = total;
    }
}
""")


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)

    def forward(self, x):
        batch, features_in = x.shape
        weight, bias = self.linear.weight, self.linear.bias
        y = x.new_empty(batch, 1)
        call(kernels.linear_sigmoid_sum, x, weight, bias, y, batch, features_in, weight.shape[0])
        return y
