"""Three taps, two apart."""

from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "mutants/problems/dilated_conv1d.py"

kernels = build(r"""
void dilated_conv1d(const float *x, const float *weight, const float *bias, float *y, long batch, long channels_in,
                    long channels_out, long length, long out_length) {
    for (long b = 0; b < batch; b++)
        for (long o = 0; o < channels_out; o++)
            for (long t = 0; t < out_length; t++) {
                float sum = 0.0f;
                for (long c = 0; c < channels_in; c++) {
                    const float *row = x + (b * channels_in + c) * length + t;
                    const float *w = weight + (o * channels_in + c) * 3;
                    sum += row[0] * w[0] + row[2] * w[1] + row[4] * w[2];
                }
                y[(b * channels_out + o) * out_length + t] = sum + bias[o];
            }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = nn.Conv1d(channels_in, channels_out, 3, dilation=2)

    def forward(self, x):
        batch, channels, length = x.shape
        weight, bias = self.conv.weight, self.conv.bias
        y = x.new_empty(batch, weight.shape[0], length - 4)
        call(kernels.dilated_conv1d, x, weight, bias, y, batch, channels, weight.shape[0], length, length - 4)
        return y
