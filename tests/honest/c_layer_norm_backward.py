"""C: a row's two sums, its gradient, and its part of the columns' sums while it is in cache."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level4/layer_norm_backward"

SOURCE = r"""
#include <math.h>
#include <stdlib.h>

void backward(const float *gradient, const float *x, const float *weight, float *dx, float *dw, float *db, long rows,
              long columns) {
    double *w = calloc(2 * columns, sizeof *w), *b = w + columns;
    for (long r = 0; r < rows; r++) {
        const float *g = gradient + r * columns, *a = x + r * columns;
        double sum = 0.0, square = 0.0, first = 0.0, second = 0.0;
        for (long c = 0; c < columns; c++) sum += a[c];
        double mean = sum / columns;
        for (long c = 0; c < columns; c++) square += (a[c] - mean) * (a[c] - mean);
        double scale = 1.0 / sqrt(square / columns + 1e-5);
        for (long c = 0; c < columns; c++) {
            double normed = (a[c] - mean) * scale, inner = (double)g[c] * weight[c];
            first += inner;
            second += inner * normed;
            w[c] += g[c] * normed;
            b[c] += g[c];
        }
        first /= columns;
        second /= columns;
        for (long c = 0; c < columns; c++)
            dx[r * columns + c] = (float)(((double)g[c] * weight[c] - first - (a[c] - mean) * scale * second) * scale);
    }
    for (long c = 0; c < columns; c++) dw[c] = (float)(w[c] / sqrt(rows)), db[c] = (float)(b[c] / sqrt(rows));
    free(w);
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).backward
    kernel.argtypes = [
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_long,
        ctypes.c_long,
    ]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(columns))
        self.kernel = build()

    def forward(self, gradient, x):
        gradient, x = gradient.contiguous(), x.contiguous()
        dx, dw, db = torch.empty_like(x), torch.empty(x.shape[1]), torch.empty(x.shape[1])
        self.kernel(*(t.data_ptr() for t in (gradient, x, self.weight, dx, dw, db)), *x.shape)
        return dx, dw, db
