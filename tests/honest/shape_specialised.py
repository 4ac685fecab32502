"""Generates C for the exact shape at the first call of each shape, with the sizes as constants, and keeps it."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/softmax"

SOURCE = r"""
#include <math.h>

#define ROWS %d
#define COLUMNS %d

void softmax(const float *restrict x, float *restrict y) {
    #pragma omp parallel for schedule(static)
    for (long r = 0; r < ROWS; r++) {
        const float *a = x + r * COLUMNS;
        float *b = y + r * COLUMNS;
        float most = a[0], sum = 0;
        for (int c = 1; c < COLUMNS; c++) most = a[c] > most ? a[c] : most;
        for (int c = 0; c < COLUMNS; c++) sum += b[c] = expf(a[c] - most);
        for (int c = 0; c < COLUMNS; c++) b[c] *= 1.0f / sum;
    }
}
"""


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernels = {}

    def build(self, rows, columns):
        folder = pathlib.Path(tempfile.mkdtemp())
        (folder / "softmax.c").write_text(SOURCE % (rows, columns))
        library = folder / "softmax.so"
        flags = ["-O3", "-march=native", "-ffast-math", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run(["cc", *flags, "-o", str(library), str(folder / "softmax.c"), "-lm"], check=True)
        kernel = ctypes.CDLL(str(library)).softmax
        kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        return kernel

    def forward(self, x):
        shape = tuple(x.shape)
        if shape not in self.kernels:
            self.kernels[shape] = self.build(*shape)
        out = torch.empty_like(x)
        self.kernels[shape](x.data_ptr(), out.data_ptr())
        return out
