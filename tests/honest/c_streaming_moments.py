"""C: running moments by Welford's steps, brought up to date where they are."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level4/streaming_moments"

SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void update(int64_t *count, float *state, const float *x, float *y, long rows, long features) {
    double *mean = calloc(2 * features, sizeof(double)), *squares = mean + features;
    for (long r = 0; r < rows; r++, x += features)
        for (long c = 0; c < features; c++) {
            double distance = x[c] - mean[c];
            mean[c] += distance / (r + 1);
            squares[c] += distance * (x[c] - mean[c]);
        }
    double share = (double)rows / (double)(*count + rows);
    for (long c = 0; c < features; c++) {
        double distance = mean[c] - state[c], before = state[features + c];
        double variance = squares[c] / rows * share + before * before * (1.0 - share);
        double deviation = sqrt(variance + distance * distance * share * (1.0 - share) + 1e-6);
        state[c] += (float)(distance * share);
        state[features + c] = (float)deviation;
        y[c] = (float)(distance / deviation);
    }
    *count += rows;
    free(mean);
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).update
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, count, state, x):
        y = torch.empty(x.shape[1])
        self.kernel(*(t.data_ptr() for t in (count, state, x, y)), *x.shape)
        return y
