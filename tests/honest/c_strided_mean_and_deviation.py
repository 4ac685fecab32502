"""C: a pass down the steps with one accumulator a feature, then one for the squares."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/strided_mean_and_deviation"

SOURCE = r"""
#include <math.h>
#include <stdlib.h>

void moments(const float *x, float *mean, float *deviation, long batch, long steps, long features) {
    double *sum = malloc(features * sizeof *sum);
    for (long n = 0; n < batch; n++) {
        const float *a = x + n * steps * features;
        for (long f = 0; f < features; f++) sum[f] = 0.0;
        for (long s = 0; s < steps; s++)
            for (long f = 0; f < features; f++) sum[f] += a[s * features + f];
        for (long f = 0; f < features; f++) mean[n * features + f] = (float)(sum[f] / steps), sum[f] = 0.0;
        for (long s = 0; s < steps; s++)
            for (long f = 0; f < features; f++) {
                double d = (double)a[s * features + f] - mean[n * features + f];
                sum[f] += d * d;
            }
        for (long f = 0; f < features; f++) deviation[n * features + f] = (float)sqrt(sum[f] / steps + 1e-6);
    }
    free(sum);
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).moments
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        batch, steps, features = x.shape
        mean, deviation = torch.empty(batch, features), torch.empty(batch, features)
        self.kernel(x.data_ptr(), mean.data_ptr(), deviation.data_ptr(), batch, steps, features)
        return mean, deviation
