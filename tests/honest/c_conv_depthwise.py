"""C: a 5 x 5 filter over each plane, added up tap by tap along rows."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/conv_2d_depthwise"

SOURCE = r"""
void depthwise(const float *x, const float *weight, const float *bias, float *y, long planes, long channels,
               long height, long width) {
    for (long p = 0; p < planes; p++) {
        const float *a = x + p * height * width, *w = weight + p % channels * 25;
        float *b = y + p * height * width;
        for (long i = 0; i < height; i++) {
            for (long j = 0; j < width; j++) b[i * width + j] = bias[p % channels];
            for (long u = 0; u < 5; u++) {
                long row = i + u - 2;
                if (row < 0 || row >= height) continue;
                for (long v = 0; v < 5; v++) {
                    long from = v < 2 ? 2 - v : 0, to = v > 2 ? width - (v - 2) : width;
                    for (long j = from; j < to; j++) b[i * width + j] += w[u * 5 + v] * a[row * width + j + v - 2];
                }
            }
        }
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).depthwise
    kernel.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_long,
        ctypes.c_long,
        ctypes.c_long,
        ctypes.c_long,
    ]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv = torch.nn.Conv2d(channels, channels, kernel_size=5, padding=2, groups=channels)
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        pointers = (t.data_ptr() for t in (x, self.conv.weight, self.conv.bias, y))
        self.kernel(*pointers, batch * channels, channels, height, width)
        return y
