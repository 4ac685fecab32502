"""C: a direct convolution over channels-last copies, weights packed at the first call, a channels-last output.

The output has the right shape and values; its strides are those of `torch.channels_last`, not of a contiguous tensor.
"""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level2/conv_bias_relu"

SOURCE = r"""
#include <string.h>

enum { W = 16 }; /* output channels at a time */
typedef float vec __attribute__((vector_size(64), aligned(4)));

/* x: padded by one on each side, channels last; weight: [blocks][3][3][in][W]; y: channels last */
void conv_bias_relu(const float *x, const float *weight, const float *bias, float *y,
                    long images, long height, long width, long in, long out) {
    long line = (width + 2) * in, blocks = (out + W - 1) / W;
    for (long i = 0; i < images; i++)
        for (long h = 0; h < height; h++)
            for (long q = 0; q < blocks; q++)
                for (long w = 0; w < width; w++) {
                    vec sum = *(const vec *)(bias + q * W);
                    for (long kh = 0; kh < 3; kh++) {
                        const float *a = x + (i * (height + 2) + h + kh) * line + w * in;
                        const float *b = weight + (q * 3 + kh) * 3 * in * W;
                        for (long t = 0; t < 3 * in; t++) /* three pixels lie side by side */
                            sum += a[t] * *(const vec *)(b + t * W);
                    }
                    float *to = y + ((i * height + h) * width + w) * out + q * W;
                    for (long c = 0; c < W && q * W + c < out; c++) to[c] = sum[c] > 0.0f ? sum[c] : 0.0f;
                }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "conv.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-shared", "-fPIC"]
    subprocess.run(["cc", *flags, "-o", folder / "conv.so", folder / "conv.c"], check=True)
    kernel = ctypes.CDLL(str(folder / "conv.so")).conv_bias_relu
    kernel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] * 5
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, channels_in, channels_out):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels_in, channels_out, kernel_size=3, padding=1, bias=False)
        self.bias = torch.nn.Parameter(0.1 * torch.randn(channels_out, 1, 1))
        self.kernel = build()
        self.packed = None

    def pack(self):
        out, inner = self.conv.weight.shape[:2]
        blocks = -(-out // 16)
        weight = self.conv.weight.new_zeros(blocks * 16, inner, 3, 3)
        weight[:out] = self.conv.weight
        bias = weight.new_zeros(blocks * 16)
        bias[:out] = self.bias.flatten()
        return weight.view(blocks, 16, inner, 3, 3).permute(0, 3, 4, 2, 1).contiguous(), bias

    def forward(self, x):
        if self.packed is None:
            self.packed = self.pack()
        weight, bias = self.packed
        images, inner, height, width = x.shape
        padded = x.new_zeros(images, height + 2, width + 2, inner)
        padded[:, 1:-1, 1:-1] = x.permute(0, 2, 3, 1)
        out = self.conv.weight.shape[0]
        y = torch.empty(images, out, height, width, memory_format=torch.channels_last)
        pointers = (tensor.data_ptr() for tensor in (padded, weight, bias, y))
        self.kernel(*pointers, images, height, width, inner, out)
        return y
