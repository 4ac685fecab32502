"""Convolution and minimum in one loop."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/conv_scale_min.py"

kernels = build(r"""
#include <math.h>

void conv_scale_min(const float *x, const float *weight, const float *bias, float *y, long batch, long channels_in,
                    long channels_out, long height, long width) {
    long rows = height - 2, columns = width - 2;
    for (long b = 0; b < batch; b++)
        for (long i = 0; i < rows; i++)
            for (long j = 0; j < columns; j++) {
                float least = INFINITY;
                for (long o = 0; o < channels_out; o++) {
                    float sum = bias[o];
                    for (long c = 0; c < channels_in; c++)
                        for (long u = 0; u < 3; u++)
                            for (long v = 0; v < 3; v++)
                                sum += x[((b * channels_in + c) * height + i + u) * width + j + v] *
                                       weight[((o * channels_in + c) * 3 + u) * 3 + v];
                    sum *= 2.0f;
                    if (sum < least) least = sum;
                }
                y[(b * rows + i) * columns + j] = least;
            }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3)

    def forward(self, x):
        batch, channels, height, width = x.shape
        weight, bias = self.conv.weight, self.conv.bias
        y = x.new_empty(batch, 1, height - 2, width - 2)
        call(kernels.conv_scale_min, x, weight, bias, y, batch, channels, weight.shape[0], height, width)
        return y
