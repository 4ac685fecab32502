"""A row of the product in a buffer, normalised group by group."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/linear_group_norm_hard_tanh.py"

kernels = build(r"""
#include <math.h>
#include <stdlib.h>

void linear_group_norm_hard_tanh(const float *x, const float *weight, const float *bias, const float *scale,
                                 const float *shift, float *y, long batch, long features_in, long features_out,
                                 long groups) {
    float *row = malloc(features_out * sizeof(float));
    long size = features_out / groups;
    for (long i = 0; i < batch; i++) {
        for (long o = 0; o < features_out; o++) {
            row[o] = bias[o];
            for (long p = 0; p < features_in; p++) row[o] += x[i * features_in + p] * weight[o * features_in + p];
        }
        for (long g = 0; g < groups; g++) {
            float mean = 0.0f, variance = 0.0f;
            for (long o = g * size; o < (g + 1) * size; o++) mean += row[o];
            mean /= size;
            for (long o = g * size; o < (g + 1) * size; o++) variance += (row[o] - mean) * (row[o] - mean);
            variance /= size;
            for (long o = g * size; o < (g + 1) * size; o++) {
                float value = (row[o] - mean) / sqrtf(variance + 1e-5f) * scale[o] + shift[o];
                if (value < -2.0f) value = -2.0f;
                if (value > 2.0f) value = 2.0f;
                y[i * features_out + o] = value;
            }
        }
    }
    free(row);
}
""")


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out, groups):
        super().__init__()
        self.linear = nn.Linear(features_in, features_out)
        self.norm = nn.GroupNorm(groups, features_out)

    def forward(self, x):
        batch, features_in = x.shape
        linear, norm = self.linear, self.norm
        features_out = linear.weight.shape[0]
        y = x.new_empty(batch, features_out)
        call(
            kernels.linear_group_norm_hard_tanh,
            x,
            linear.weight,
            linear.bias,
            norm.weight,
            norm.bias,
            y,
            batch,
            features_in,
            features_out,
            norm.num_groups,
        )
        return y
