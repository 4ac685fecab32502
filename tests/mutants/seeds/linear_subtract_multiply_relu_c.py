"""Epilogue on the accumulator."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/linear_subtract_multiply_relu.py"

kernels = build(r"""
#include <math.h>

void linear_subtract_multiply_relu(const float *x, const float *weight, const float *bias, float *y,
                                   long batch, long features_in, long features_out) {
    for (long i = 0; i < batch; i++)
        for (long o = 0; o < features_out; o++) {
            float sum = 0.0f;
            for (long p = 0; p < features_in; p++) sum += x[i * features_in + p] * weight[o * features_in + p];
            float value = (sum + bias[o] - 2.0f) * 1.5f;
            y[i * features_out + o] = value > 0.0f ? value : 0.0f;
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
        y = x.new_empty(batch, weight.shape[0])
        call(kernels.linear_subtract_multiply_relu, x, weight, bias, y, batch, features_in, weight.shape[0])
        return y
