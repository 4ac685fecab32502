"""C: group normalisation in two passes over each group, sums in double precision."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/group_norm"

SOURCE = r"""
#include <math.h>

void group_norm(const float *x, const float *weight, const float *bias, float *y, long groups_in_all, long groups,
                long channels, long size) {
    long each = channels / groups, count = each * size;
    for (long g = 0; g < groups_in_all; g++) {
        const float *a = x + g * count;
        float *b = y + g * count;
        double sum = 0.0, square = 0.0;
        for (long i = 0; i < count; i++) sum += a[i];
        float mean = (float)(sum / count);
        for (long i = 0; i < count; i++) square += (double)(a[i] - mean) * (a[i] - mean);
        float scale = (float)(1.0 / sqrt(square / count + 1e-5));
        for (long c = 0; c < each; c++) {
            long channel = g % groups * each + c;
            float w = weight[channel] * scale, shift = bias[channel];
            for (long i = c * size; i < (c + 1) * size; i++) b[i] = (a[i] - mean) * w + shift;
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
    kernel = ctypes.CDLL(str(folder / "kernel.so")).group_norm
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
    def __init__(self, groups, channels):
        super().__init__()
        self.groups = groups
        self.weight = torch.nn.Parameter(torch.empty(channels))
        self.bias = torch.nn.Parameter(torch.empty(channels))
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        batch, channels, height, width = x.shape
        pointers = (t.data_ptr() for t in (x, self.weight, self.bias, y))
        self.kernel(*pointers, batch * self.groups, self.groups, channels, height * width)
        return y
