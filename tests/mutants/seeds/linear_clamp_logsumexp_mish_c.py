"""Clamped values bound the exponentials: no maximum is needed."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/linear_clamp_logsumexp_mish.py"

kernels = build(r"""
#include <math.h>

void linear_clamp_logsumexp_mish(const float *x, const float *weight, const float *bias, float *y,
                                 long batch, long features_in, long features_out) {
    for (long i = 0; i < batch; i++) {
        float total = 0.0f;
        for (long o = 0; o < features_out; o++) {
            float sum = bias[o];
            for (long p = 0; p < features_in; p++) sum += x[i * features_in + p] * weight[o * features_in + p];
            float value = sum * 2.0f;
            value = value < -10.0f ? -10.0f : value;
            value = value > 10.0f ? 10.0f : value;
            total += expf(value);
        }
        float t = logf(total);
        float softplus = t > 20.0f ? t : log1pf(expf(t));
        y[i] = t * (t * tanhf(softplus));
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
        call(kernels.linear_clamp_logsumexp_mish, x, weight, bias, y, batch, features_in, weight.shape[0])
        return y
