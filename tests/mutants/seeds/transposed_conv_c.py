"""Scatters every input into the output."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/transposed_conv.py"

kernels = build(r"""
void transposed_conv(const float *x, const float *weight, float *y, long batch, long channels_in, long channels_out,
                     long height, long width, long rows, long columns) {
    for (long i = 0; i < batch * channels_out * rows * columns; i++) y[i] = 0.0f;
    for (long b = 0; b < batch; b++)
        for (long c = 0; c < channels_in; c++)
            for (long i = 0; i < height; i++)
                for (long j = 0; j < width; j++) {
                    float value = x[((b * channels_in + c) * height + i) * width + j];
                    for (long o = 0; o < channels_out; o++)
                        for (long u = 0; u < 3; u++)
                            for (long v = 0; v < 3; v++) {
                                long r = i * 2 + u - 1, s = j * 2 + v - 1;
                                if (r >= 0 && r < rows && s >= 0 && s < columns)
                                    y[((b * channels_out + o) * rows + r) * columns + s] +=
                                        value * weight[((c * channels_out + o) * 3 + u) * 3 + v];
                            }
                }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.ConvTranspose2d(channels_in, channels_out, 3, stride=2, padding=1, bias=False)

    def forward(self, x):
        batch, channels, height, width = x.shape
        weight = self.conv.weight
        rows, columns = 2 * height - 1, 2 * width - 1
        y = x.new_empty(batch, weight.shape[1], rows, columns)
        call(kernels.transposed_conv, x, weight, y, batch, channels, weight.shape[1], height, width, rows, columns)
        return y
