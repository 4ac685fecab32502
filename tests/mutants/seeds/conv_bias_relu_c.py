"""PyTorch convolves; bias and ReLU in one loop."""

import torch
from torch import nn

from tests.mutants.preludes.c import build, call

PROBLEM = "core/level2/conv_bias_relu"

kernels = build(r"""
void bias_relu(const float *x, const float *bias, float *y, long batch, long channels, long plane) {
    for (long b = 0; b < batch; b++)
        for (long c = 0; c < channels; c++)
            for (long i = 0; i < plane; i++) {
                float value = x[(b * channels + c) * plane + i] + bias[c];
                y[(b * channels + c) * plane + i] = value > 0.0f ? value : 0.0f;
            }
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels_in: int, channels_out: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.bias = nn.Parameter(0.1 * torch.randn(channels_out, 1, 1))

    def forward(self, x):
        x = self.conv(x)
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        call(kernels.bias_relu, x, self.bias, y, batch, channels, height * width)
        return y
