"""C: batch normalisation, each channel's planes summed twice and written once."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/batch_norm_training"

SOURCE = r"""
#include <math.h>

void batch_norm(const float *x, const float *weight, const float *bias, float *y, long batch, long channels,
                long size) {
    for (long c = 0; c < channels; c++) {
        double sum = 0.0, square = 0.0;
        for (long n = 0; n < batch; n++)
            for (long i = 0; i < size; i++) sum += x[(n * channels + c) * size + i];
        float mean = (float)(sum / (batch * size));
        for (long n = 0; n < batch; n++)
            for (long i = 0; i < size; i++) {
                double d = x[(n * channels + c) * size + i] - mean;
                square += d * d;
            }
        float scale = weight[c] * (float)(1.0 / sqrt(square / (batch * size) + 1e-5));
        for (long n = 0; n < batch; n++)
            for (long i = 0; i < size; i++) {
                long at = (n * channels + c) * size + i;
                y[at] = (x[at] - mean) * scale + bias[c];
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
    kernel = ctypes.CDLL(str(folder / "kernel.so")).batch_norm
    kernel.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_long,
        ctypes.c_long,
        ctypes.c_long,
    ]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(channels))
        self.bias = torch.nn.Parameter(torch.empty(channels))
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        pointers = (t.data_ptr() for t in (x, self.weight, self.bias, y))
        self.kernel(*pointers, batch, channels, height * width)
        return y
