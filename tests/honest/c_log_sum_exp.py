"""C: the log-sum-exp of each row, its maximum first and then one sum."""

import ctypes
import pathlib
import subprocess
import tempfile

import torch

PROBLEM = "core/level1/log_sum_exp_vocabulary"

SOURCE = r"""
#include <math.h>

void log_sum_exp(const float *x, float *y, long rows, long columns) {
    for (long r = 0; r < rows; r++) {
        const float *a = x + r * columns;
        float top = -INFINITY;
        double sum = 0.0;
        for (long c = 0; c < columns; c++) top = a[c] > top ? a[c] : top;
        for (long c = 0; c < columns; c++) sum += expf(a[c] - top);
        y[r] = isinf(top) ? top : top + (float)log(sum);
    }
}
"""


def build():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "kernel.c").write_text(SOURCE)
    flags = ["-O3", "-march=native", "-fno-math-errno", "-shared", "-fPIC"]
    command = ["cc", *flags, "-o", folder / "kernel.so", folder / "kernel.c", "-lm"]
    subprocess.run(command, check=True, capture_output=True, text=True)
    kernel = ctypes.CDLL(str(folder / "kernel.so")).log_sum_exp
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long, ctypes.c_long]
    return kernel


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.kernel = build()

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0])
        self.kernel(x.data_ptr(), y.data_ptr(), *x.shape)
        return y
