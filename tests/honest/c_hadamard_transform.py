"""C: all steps of a row's transform while the row is in cache."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/hadamard_transform"

SOURCE = r"""
#include <math.h>

void transform(const float *x, const float *sign, float *y, long rows, long columns) {
    float scale = 1.0f / sqrtf((float)columns);
    for (long r = 0; r < rows; r++) {
        float *b = y + r * columns;
        for (long c = 0; c < columns; c++) b[c] = sign[c] * x[r * columns + c];
        for (long half = 1; half < columns; half *= 2)
            for (long start = 0; start < columns; start += 2 * half)
                for (long i = start; i < start + half; i++) {
                    float u = b[i], v = b[i + half];
                    b[i] = u + v;
                    b[i + half] = u - v;
                }
        for (long c = 0; c < columns; c++) b[c] *= scale;
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).transform
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.sign = torch.nn.Parameter(torch.empty(columns))
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        self.kernel(x.data_ptr(), self.sign.data_ptr(), y.data_ptr(), *x.shape)
        return y
