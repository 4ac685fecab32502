"""Direct, taps outside skipped."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/strided_conv.py"

kernels = build(r"""
void strided_conv(const float *x, const float *weight, const float *bias, float *y, long batch, long channels_in,
                  long channels_out, long height, long width, long rows, long columns) {
    for (long b = 0; b < batch; b++)
        for (long o = 0; o < channels_out; o++)
            for (long i = 0; i < rows; i++)
                for (long j = 0; j < columns; j++) {
                    float sum = bias[o];
                    for (long c = 0; c < channels_in; c++)
                        for (long u = 0; u < 3; u++)
                            for (long v = 0; v < 3; v++) {
                                long r = i * 2 + u - 1, s = j * 2 + v - 1;
                                if (r < 0 || r >= height || s < 0 || s >= width) continue;
                                sum += x[((b * channels_in + c) * height + r) * width + s] *
                                       weight[((o * channels_in + c) * 3 + u) * 3 + v];
                            }
                    y[((b * channels_out + o) * rows + i) * columns + j] = sum;
                }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, 3, stride=2, padding=1)

    def forward(self, x):
        batch, channels, height, width = x.shape
        rows, columns = (height + 1) // 2, (width + 1) // 2
        weight, bias = self.conv.weight, self.conv.bias
        y = x.new_empty(batch, weight.shape[0], rows, columns)
        call(kernels.strided_conv, x, weight, bias, y, batch, channels, weight.shape[0], height, width, rows, columns)
        return y
